"""Which addresses are public, which hosts are allowed, and that a name is judged by all it means."""

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import pytest

from spool.errors import SettingsError
from spool.net import AddressRules, HostRefused, HostUnknown, is_public, may_be_private, normal_host
from spool.settings import load_settings

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "2a00:1450:4001::200e", "64:ff9b::808:808"]
INSIDE = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1",
    "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1",
    "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1",
    "2001::1", "2001:db8::1", "2002:7f00:1::1", "3fff::1", "5f00::1", "fc00::1", "fd12::1", "fe80::1",
    "fe80::1%eth0", "fec0::1", "ff02::1",
]  # fmt: skip


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", INSIDE)
def test_addresses_that_are_nobodys_on_the_internet(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["10.1.2.3", "127.0.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd12::1"])
def test_a_host_named_as_private_may_be_there(text: str) -> None:
    assert may_be_private(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "text",
    ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fe80::1", "fd00:ec2::254", "0.0.0.0",
     "::", "224.0.0.1", "255.255.255.255", "100.100.100.200", "192.0.0.192"],
)  # fmt: skip
def test_where_clouds_keep_their_keys_no_setting_leads(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert not may_be_private(address)
    assert not is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "::1", "localhost",
             "LOCALHOST.", "files.localhost", "169.254.169.254", "[::ffff:10.0.0.1]", "0", "0.0.0.0", "[::]",
             "0xa9fea9fe", "0251.0376.0251.0376", "10.1", "[::ffff:7f00:1]", "[64:ff9b::a9fe:a9fe]",
             "[fe80::1%25eth0]", "127\u30020\u30020\u30021",  # ideographic full stops
             "\uff11\uff12\uff17.0.0.1",  # digits of full width
             "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",  # circled digits
             "\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54"],
)  # fmt: skip
def test_what_needs_no_resolver_to_be_refused(host: str) -> None:
    with pytest.raises(HostRefused, match="not a public host"):
        AddressRules().check_name(host)


def test_hosts_are_matched_by_name() -> None:
    rules = AddressRules(hosts=("example.org", "*.example.net"), private=("files.corp.example",))
    for host in ("example.org", "EXAMPLE.org.", "a.example.net", "a.b.example.net", "files.corp.example"):
        assert rules.check_name(host) == normal_host(host)
    for host in ("a.example.org", "example.net", "badexample.net", "example.org.evil.test", "8.8.8.8"):
        with pytest.raises(HostRefused, match="is not among the hosts"):
            rules.check_name(host)


def answering(*addresses: str) -> Callable[..., list[Any]]:
    def lookup(host: str, port: int) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return lookup


def test_every_address_of_a_name_has_to_be_allowed() -> None:
    assert AddressRules(lookup=answering("8.8.8.8", "8.8.8.8", "2a00:1450::1")).resolve("a.test", 443) == [
        "8.8.8.8",
        "2a00:1450::1",
    ]
    for inside in INSIDE:
        with pytest.raises(HostRefused, match=r"^a\.test is not") as caught:
            AddressRules(lookup=answering("8.8.8.8", inside)).resolve("a.test", 443)
        assert inside not in str(caught.value)


def test_a_private_host_may_resolve_inside_and_nowhere_worse() -> None:
    def rules(*addresses: str) -> AddressRules:
        return AddressRules(private=("files.test",), lookup=answering(*addresses))

    assert rules("10.0.0.1").resolve("files.test", 443) == ["10.0.0.1"]
    with pytest.raises(HostRefused):
        rules("10.0.0.1").resolve("other.test", 443)
    with pytest.raises(HostRefused):
        rules("169.254.169.254").resolve("files.test", 443)


def test_names_without_an_address_are_unknown() -> None:
    with pytest.raises(HostUnknown):
        AddressRules(lookup=answering()).resolve("a.test", 443)

    def fail(host: str, port: int) -> list[tuple[object, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    with pytest.raises(HostUnknown):
        AddressRules(lookup=fail).resolve("a.test", 443)


@pytest.mark.parametrize(
    "host",
    ["xn--", "www.xn--", "xn--a", "a..b", ".", "", f"{'a' * 64}.org", "a." * 127 + "org", "ex%41mple.org",
     "a b.org", "a*b.org", "a:b", "\u2603.net"],
)  # fmt: skip
def test_a_name_that_no_resolver_can_know_is_refused_without_one(host: str) -> None:
    with pytest.raises(HostRefused, match="not a valid host name"):
        AddressRules(lookup=answering("8.8.8.8")).resolve(host, 443)


def test_names_of_all_scripts_have_one_form() -> None:
    for host in ("B\u00dcCHER.example.", "xn--bcher-kva.example", "b\u00fccher\u3002example"):
        assert normal_host(host) == "xn--bcher-kva.example"
    assert normal_host("_dmarc.under_score.example") == "_dmarc.under_score.example"


def test_hosts_come_from_the_settings() -> None:
    settings = load_settings(
        {"SPOOL_SOURCE_HOSTS": "Example.org, *.example.net,", "SPOOL_SOURCE_PRIVATE_HOSTS": '["files.corp"]'}
    )
    assert settings.source_hosts == ("example.org", "*.example.net")
    assert settings.source_addresses.check_name("files.corp") == "files.corp"
    for wrong in ("https://example.org/", "ex*mple.org"):
        with pytest.raises(SettingsError, match="SPOOL_SOURCE_HOSTS: has to be a list of hosts"):
            load_settings({"SPOOL_SOURCE_HOSTS": wrong})
