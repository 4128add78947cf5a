"""The connection goes to the address that was checked, under the name that was asked for."""

import asyncio
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from spool.net import AddressRules, HostRefused, PinnedTransport
from tests.worker.sources import certificates


@dataclass
class Client:
    """What a caller that is not asynchronous sees: one request, redirects followed."""

    rules: AddressRules

    def get(self, address: str) -> httpx.Response:
        async def fetch() -> httpx.Response:
            transport = PinnedTransport(self.rules)
            async with httpx.AsyncClient(transport=transport, follow_redirects=True) as client:
                return await client.get(address)

        return asyncio.run(fetch())


pytestmark = pytest.mark.integration

NAME = "archive.test"  # no resolver knows it (RFC 6761)


@dataclass
class Seen:
    """A server over TLS, and what it was asked."""

    port: int = 0
    names: list[str | None] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    seen = Seen()

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.hosts.append(self.headers["Host"])
            body = b"words"
            self.send_response(302 if self.path.startswith("/to/") else 200)
            if self.path.startswith("/to/"):
                self.send_header("Location", f"https://{self.path.removeprefix('/to/')}:{seen.port}/a.wav")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    certificate, key = certificates.for_localhost(tmp_path, NAME)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda _socket, name, _context: seen.names.append(name)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    seen.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    yield seen
    server.shutdown()
    server.server_close()
    thread.join()


class Resolver:
    """Answers with the next list of addresses each time it is asked."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[tuple[object, ...]]:
        self.asked.append(host)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.answers.pop(0)
        ]


def test_the_checked_address_is_connected_to_under_the_name(seen: Seen) -> None:
    resolver = Resolver(("127.0.0.1",))
    client = Client(AddressRules(private=(NAME,), lookup=resolver))
    answer = client.get(f"https://{NAME}:{seen.port}/a.wav")
    assert answer.text == "words"
    assert str(answer.url) == f"https://{NAME}:{seen.port}/a.wav"
    assert (resolver.asked, seen.names, seen.hosts) == ([NAME], [NAME], [f"{NAME}:{seen.port}"])


def test_the_certificate_has_to_be_the_names(seen: Seen) -> None:
    rules = AddressRules(private=("other.test",), lookup=Resolver(("127.0.0.1",)))
    client = Client(rules)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE"):
        client.get(f"https://other.test:{seen.port}/a.wav")
    assert seen.hosts == []


def test_a_name_that_changes_its_meaning_is_judged_anew_at_each_connection(seen: Seen) -> None:
    # Given a name that is an allowed file server when first asked, and the cloud's keys after a redirect
    resolver = Resolver(("127.0.0.1",), ("169.254.169.254",))
    rules = AddressRules(private=(NAME,), lookup=resolver)
    client = Client(rules)
    with pytest.raises(HostRefused, match=f"^{NAME} is not"):
        client.get(f"https://{NAME}:{seen.port}/to/{NAME}")
    assert len(seen.hosts) == 1
    assert resolver.answers == []


@pytest.mark.parametrize(
    "place", ["127.0.0.1", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "localhost"]
)
def test_a_redirect_inside_is_refused_however_it_is_spelt(seen: Seen, place: str) -> None:
    rules = AddressRules(private=(NAME,), lookup=Resolver(("127.0.0.1",)))
    client = Client(rules)
    with pytest.raises(HostRefused):
        client.get(f"https://{NAME}:{seen.port}/to/{place}")
    assert len(seen.hosts) == 1


def test_an_address_that_does_not_answer_yields_to_the_next(seen: Seen) -> None:
    rules = AddressRules(private=(NAME,), lookup=Resolver(("::1", "127.0.0.1")))
    client = Client(rules)
    assert client.get(f"https://{NAME}:{seen.port}/a.wav").text == "words"


def test_proxies_of_the_environment_play_no_part(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    client = Client(AddressRules(private=(NAME,), lookup=Resolver(("127.0.0.1",))))
    assert client.get(f"https://{NAME}:{seen.port}/a.wav").text == "words"


def test_nothing_but_https_is_spoken() -> None:
    client = Client(AddressRules(private=(NAME,)))
    with pytest.raises(httpx.UnsupportedProtocol):
        client.get(f"http://{NAME}/a.wav")
