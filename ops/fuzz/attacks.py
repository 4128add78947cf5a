"""Requests that may hold an API process: bodies of every shape that its routes parse, drawn and mutated."""

import json
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

ROUTES = ("/v1/jobs", "/v1/batches", "/v1/webhooks", "/v1/audio/transcriptions")
SIZES = (1, 10, 100, 1_000, 10_000, 60_000, 100_000, 400_000, 2_000_000)
LARGEST = 8 << 20
READ_PATHS = ("/v1/jobs", "/v1/batches", "/v1/costs", "/v1/workers", "/v1/overview", "/metrics", "/v1/models")


def _nested(number: int) -> bytes:
    return b'{"options":' * min(number, 200_000) + b"1" + b"}" * min(number, 200_000)


SHAPES: dict[str, Callable[[int], bytes]] = {
    "unknown keys": lambda n: json.dumps({f"k{i}": i for i in range(n)}).encode(),
    "the same key": lambda n: b'{"source":1' + b',"source":1' * n + b"}",
    "unknown options": lambda n: json.dumps({"options": {f"k{i}": [i] for i in range(n)}}).encode(),
    "tags": lambda n: json.dumps({"source": "file:///a", "tags": {f"k{i}": "v" for i in range(n)}}).encode(),
    "wrong tags": lambda n: json.dumps({"tags": {f"k{i}": {} for i in range(n)}}).encode(),
    "phrases": lambda n: _phrases(f"phrase {i}" for i in range(n)),
    "one long phrase": lambda n: _phrases(["é" * n]),
    "phrases of control characters": lambda n: _phrases("\x01" * 20 for _ in range(n)),
    "numbers as phrases": lambda n: _phrases(range(n)),
    "a long source": lambda n: json.dumps({"source": "https://" + "a." * n}).encode(),
    "a source of percent signs": lambda n: json.dumps({"source": "https://a/" + "%41" * n}).encode(),
    "events": lambda n: json.dumps({"url": "https://a", "events": ["job.done"] * n}).encode(),
    "wrong events": lambda n: json.dumps({"url": "https://a", "events": [str(i) for i in range(n)]}).encode(),
    "empty lists": lambda n: b'{"options":[' + b"[]," * n + b"[]]}",
    "escapes": lambda n: b'{"source":"' + b"\\u00e9" * n + b'"}',
    "half a surrogate": lambda n: b'{"source":"' + b"\\ud800" * n + b'"}',
    "long numbers": lambda n: b'{"priority":' + b"9" * n + b"}",
    "many floats": lambda n: b'{"options":{"a":[' + b"1e308," * n + b"0]}}",
    "nested objects": _nested,
    "nested lists": lambda n: b"[" * n,
    "spaces": lambda n: b" " * n + b"{}",
    "no JSON": lambda n: b"x" * n,
    "bad lines": lambda n: b'{"source": 1}\n' * n,
    "good lines": lambda n: b"".join(b'{"source":"file:///nowhere/%d"}\n' % i for i in range(n)),
    "empty lines": lambda n: b"\n" * n,
    "one long line": lambda n: b'{"source":"' + b"a" * n + b'"}\n',
    "parts": lambda n: b"".join(_part(f"p{i}") for i in range(n)) + b"--b--\r\n",
    "headers of a part": lambda n: b"--b\r\n" + b"X-A: b\r\n" * n + b"\r\n\r\n--b--\r\n",
    "a long field": lambda n: _part("request", b"{" * n) + b"--b--\r\n",
    "boundaries": lambda n: b"--b\r\n" * n,
}
KINDS = ("application/json", "application/x-ndjson", "multipart/form-data; boundary=b")


def _phrases(phrases: object) -> bytes:
    boost = {"phrases": list(phrases)}  # type: ignore[call-overload]
    return json.dumps({"source": "file:///a", "options": {"decoder": "beam", "boost": boost}}).encode()


def _part(name: str, value: bytes = b"1") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
    return head.encode() + value + b"\r\n"


@dataclass(frozen=True)
class Attack:
    """One request: a body of `size` things of a `shape` (two for a mixture), or a query for `GET`."""

    route: str
    kind: str
    shapes: tuple[str, ...]
    size: int

    def bytes(self, key: str) -> bytes:
        """The request as it is sent with this key."""
        if self.kind == "query":
            query = "&".join(f"tag={shape[:3]}{i}" for shape in self.shapes for i in range(self.size))[
                :60_000
            ]
            return request("GET", f"{self.route}?{query}", key)
        body = b"".join(SHAPES[shape](self.size) for shape in self.shapes)[:LARGEST]
        return request("POST", self.route, key, body, {"Content-Type": self.kind})

    def __str__(self) -> str:
        return f"{self.route} {self.kind.partition(';')[0]} {' + '.join(self.shapes)} x {self.size}"


def draw(dice: random.Random) -> Attack:
    """Any request."""
    if dice.random() < 0.1:
        return Attack(dice.choice(READ_PATHS), "query", (dice.choice(list(SHAPES)),), dice.choice(SIZES))
    shapes = tuple(dice.sample(list(SHAPES), dice.choice((1, 1, 1, 2))))
    return Attack(dice.choice(ROUTES), dice.choice(KINDS), shapes, dice.choice(SIZES))


def mutate(attack: Attack, dice: random.Random) -> Attack:
    """The attack with one thing changed."""
    other = draw(dice)
    if attack.kind == "query" or dice.random() < 0.5:
        size = max(1, round(attack.size * dice.choice((0.5, 0.8, 1.25, 2, 5))))
        return replace(attack, size=min(size, SIZES[-1]))
    if other.kind == "query":
        return attack
    which = dice.choice(("route", "kind", "shapes"))
    return replace(attack, **{which: getattr(other, which)})


def request(
    method: str, path: str, key: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> bytes:
    """One HTTP request as bytes."""
    lines = {"Host": "localhost", "Authorization": f"Bearer {key}", **(headers or {})}
    if method != "GET":
        lines |= {"Content-Length": str(len(body)), "Idempotency-Key": secrets.token_hex(8)}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body
