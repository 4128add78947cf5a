"""A large object in one stream and in parts, in turns, from a server with so much a second a connection.

`python -m ops.bench.queue.s3_parts --megabytes 128 --per-connection 40` prints the seconds of each turn and
the ratio of the medians. The server is a loop of `sendall` on this machine, so that the client is
what is measured; `--per-connection 0` lets it go as fast as it can and shows what the parts themselves cost.
"""

import argparse
import random
import statistics
import time
import zlib
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import BinaryIO

from pydantic import SecretStr

from spool.objects.s3 import S3Store
from spool.objects.s3_client import S3Options

_BLOCK = 64 << 10


def serve(body: bytes, bytes_per_second: float) -> ThreadingHTTPServer:
    """An S3 server with one object, whatever is asked for."""
    checksum = b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            start, end = 0, len(body)
            asked = self.headers.get("Range", "")
            if asked:
                first, last = asked.removeprefix("bytes=").split("-")
                start, end = int(first), int(last) + 1 if last else end
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(end - start))
            self.send_header("ETag", '"one"')
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(body)}")
            else:
                self.send_header("x-amz-checksum-crc32", checksum)
            self.end_headers()
            begun = time.monotonic()
            with suppress(OSError):  # the first answer is left unread where parts follow
                for at in range(start, end, _BLOCK):
                    self.wfile.write(body[at : min(at + _BLOCK, end)])
                    if bytes_per_second:
                        due = begun + (at + _BLOCK - start) / bytes_per_second
                        time.sleep(max(due - time.monotonic(), 0.0))

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def _seconds(opened: Callable[[], BinaryIO], expected: int) -> float:
    begun, checksum = time.perf_counter(), 0
    with closing(opened()) as stream:
        while block := stream.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
    if checksum != expected:
        raise SystemExit("What arrived is not what was served.")
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--per-connection", type=float, default=40.0, help="MB/s; 0: no limit")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    body = random.Random(0).randbytes(options.megabytes * 1_000_000)
    server = serve(body, options.per_connection * 1e6)
    secret = SecretStr("bench")
    store = S3Store(
        "bench", "", S3Options(f"http://127.0.0.1:{server.server_port}", "us-east-1", secret, secret)
    )
    ways: dict[str, Callable[[], BinaryIO]] = {
        "one stream": lambda: store.open("reel.wav"),
        "in parts": lambda: store.open_to_copy("reel.wav"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.turns):
        for name, opened in ways.items():
            seconds[name].append(_seconds(opened, zlib.crc32(body)))
    for name, each in seconds.items():
        print(
            f"{name:<10}  {' '.join(f'{one:6.2f}' for one in each)} s, median {statistics.median(each):.2f} s"
        )
    one, parts = (statistics.median(each) for each in seconds.values())
    print(f"in parts {one / parts:.2f} times as fast")
    server.shutdown()


if __name__ == "__main__":
    main()
