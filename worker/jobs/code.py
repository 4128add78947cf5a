"""Which code runs here, as one hash of its source files."""

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from spool import __version__
from spool.domain.receipts import Code
from worker.models.base import DECODER_VERSION

PACKAGES = ("kernels", "spool", "worker")
ENDINGS = frozenset({".metal", ".py"})


@cache
def running_code() -> Code:
    """The code of this process. Its hash is that of the lines that `sha256sum` prints for the source files,
    sorted by name."""
    files = {
        path.relative_to(root.parent).as_posix(): path
        for root in map(_folder_of, PACKAGES)
        for path in root.rglob("*")
        if path.suffix in ENDINGS
    }
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in sorted(files.items())
    ]
    own = hashlib.sha256("".join(lines).encode()).hexdigest()
    return Code(version=__version__, sha256=own, decoder=DECODER_VERSION)


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
