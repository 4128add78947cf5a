"""Which hosts users may make the server connect to, and at which addresses (SSRF, DNS rebinding).

Owns the rules for names, IP addresses and the special ranges of IANA's registries. `AddressRules.resolve` is
called for each connection, which then goes to one of the returned addresses, whatever the name resolves to
later. Connections and HTTP are in `spool.net.pinned_http`.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import idna

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Lookup = Callable[[str, int], Sequence[tuple[Any, ...]]]

# Underscores are not allowed in host names, but are in use.
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_HOST_LENGTH = 253
# The only range of IPv6 from which unicast addresses are assigned (RFC 4291, IANA).
_UNICAST = ipaddress.IPv6Network("2000::/3")
# An IPv4 address as DNS64 embeds it (RFC 6052): the embedded address decides.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Within ranges that count as global: 6to4 reaches any IPv4 address, the others are not internet hosts.
_NEVER = tuple(
    ipaddress.ip_network(text)
    for text in ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
# No internal file server uses these: clouds serve machine credentials at link-local addresses.
_NEVER_PRIVATE = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/3",
        "fe80::/10",
        "ff00::/8",
        "fd00:ec2::/32",
        "::/128",
    )
)
# Alibaba's and Oracle's metadata servers are outside link-local.
_METADATA = tuple(ipaddress.ip_address(text) for text in ("100.100.100.200", "192.0.0.192"))


class HostRefused(Exception):
    """The settings do not allow this host. The message names it, but no address behind the name."""


class HostUnknown(Exception):
    """The name cannot be resolved, at least for now."""


def is_public(address: Address) -> bool:
    """Whether the address belongs to the public internet, also if it embeds an IPv4 address."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.scope_id is not None or address not in _UNICAST:
            return False
    if any(address.version == net.version and address in net for net in _NEVER):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_private)


def may_be_private(address: Address) -> bool:
    """Whether a host that the settings name as private may have this address."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return may_be_private(inner)
    if address in _METADATA:
        return False
    return not any(address.version == net.version and address in net for net in _NEVER_PRIVATE)


def normal_host(host: str) -> str:
    """The normalised host: lower case, IDNA, no final dot, no brackets.

    Raises ValueError for a name that no resolver can know: an empty or overlong label, a character that host
    names do not have, Punycode that decodes to nothing.
    """
    plain = host.strip().removeprefix("[").removesuffix("]").lower()
    if ":" in plain:
        return str(ipaddress.ip_address(plain.replace("%25", "%", 1)))
    if not plain.isascii():
        plain = idna.encode(plain, uts46=True).decode("ascii")  # IDNAError is a ValueError
    plain = plain.removesuffix(".")
    labels = plain.split(".")
    if len(plain) > _HOST_LENGTH or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{host!r} is not a host name.")
    for label in labels:
        if label.startswith("xn--"):
            idna.ulabel(label)
    return plain


def normal_pattern(pattern: str) -> str:
    """A normalised pattern for `matches`. Raises ValueError."""
    wildcard = "*." if pattern.strip().startswith("*.") else ""
    return wildcard + normal_host(pattern.strip().removeprefix("*."))


def matches(host: str, pattern: str) -> bool:
    """Whether a normalised host equals the pattern, or is a subdomain for `*.example.org`."""
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    return host == pattern


@dataclass(frozen=True)
class AddressRules:
    """`hosts`: patterns of allowed hosts (empty: any public one); `private`: hosts that may be private."""

    hosts: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    lookup: Lookup = field(default=lambda host, port: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))

    def check_name(self, host: str) -> str:
        """The normalised host, if the rules allow it as far as can be decided without DNS. Raises
        HostRefused."""
        try:
            normal = normal_host(host)
        except ValueError:
            raise HostRefused(f"{host!r} is not a valid host name.") from None
        is_private = any(matches(normal, pattern) for pattern in self.private)
        if self.hosts and not is_private and not any(matches(normal, pattern) for pattern in self.hosts):
            raise HostRefused(f"{normal} is not among the hosts that this server may fetch from.")
        literal = _literal(normal)
        local = normal == "localhost" or normal.endswith(".localhost")
        if (local and not is_private) or (literal is not None and not self._allows(literal, is_private)):
            raise _not_public(normal)
        return normal

    def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of `host`, all of them allowed; at least one.

        Raises HostRefused if any of them is not (a name for both internal and external addresses is an attack
        or a mistake), HostUnknown if there is none.
        """
        normal = self.check_name(host)
        is_private = any(matches(normal, pattern) for pattern in self.private)
        try:
            answers = self.lookup(normal, port)
        except (OSError, UnicodeError) as error:
            raise HostUnknown(f"{normal} cannot be resolved.") from error
        addresses: dict[str, None] = {}
        for *_, endpoint in answers:
            address = ipaddress.ip_address(str(endpoint[0]))
            if not self._allows(address, is_private):
                raise _not_public(normal)
            addresses[str(address)] = None
        if not addresses:
            raise HostUnknown(f"{normal} has no address.")
        return list(addresses)

    def _allows(self, address: Address, is_private: bool) -> bool:
        return is_public(address) or (is_private and may_be_private(address))


def _not_public(host: str) -> HostRefused:
    return HostRefused(f"{host} is not a public host, and the settings do not allow it.")


def _literal(host: str) -> Address | None:
    """The address that the host literally is, in any spelling that resolvers accept (`127.1`,
    `0x7f000001`)."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not host or host[0] not in "0123456789":
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None
