"""Where the embedded Redis of a home folder listens, whether it runs or not."""

import hashlib
import os
from pathlib import Path
from urllib.parse import quote

SOCKET_PATH_BYTES = 100  # macOS takes 104 with the closing zero, Linux 108


def default_url(home: Path) -> str:
    """The URL of the embedded server that belongs to this home folder, running or not."""
    return f"redis+socket://{quote(str(socket_path(home)))}"


def socket_path(home: Path) -> Path:
    """Where its socket is: in the home folder, or in a temporary one when that path would be too long."""
    path = home.resolve() / "redis" / "redis.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]
    return Path("/tmp") / f"spool-{os.getuid()}-{digest}" / "redis.sock"  # noqa: S108 - checked to be ours
