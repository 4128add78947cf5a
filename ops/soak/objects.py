"""The S3 server of a soak, and what is in it.

The server is moto, in the soak's own process. Thousands of objects are verified from its memory instead of
being fetched one by one, so that neither Spool's code nor a proxy stands between.
"""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from ops.testbed.s3 import S3Server
from spool.objects import FolderStore

BUCKET, PREFIX = "soak", "archive"


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with an empty bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    reached = S3Server(f"http://{host}:{port}")
    client = reached.client()
    client.create_bucket(Bucket=BUCKET)
    client.close()
    try:
        yield reached
    finally:
        server.stop()


def s3_settings(url: str) -> dict[str, str]:
    """Settings of a process whose objects are in the bucket, behind `url`."""
    return {
        "SPOOL_OBJECTS": f"s3://{BUCKET}/{PREFIX}",
        "SPOOL_S3_ENDPOINT_URL": url,
        "SPOOL_S3_ACCESS_KEY_ID": S3Server.access_key,
        "SPOOL_S3_SECRET_ACCESS_KEY": S3Server.secret_key,
    }


def stored_objects(folder: Path) -> FolderStore:
    """All objects of the bucket, copied into `folder` from the server's memory."""
    from moto.s3.models import s3_backends

    for account in s3_backends.values():
        for backend in account.values():
            for key in backend.buckets[BUCKET].keys.values() if BUCKET in backend.buckets else ():
                path = folder / key.name.removeprefix(f"{PREFIX}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(key.value)
    return FolderStore(folder)
