"""Model files from the Hugging Face hub, by a child process that runs this module.

The child keeps `huggingface_hub` out of processes that only need a path, and can be ended in the middle of a
file; a second try continues where it stopped. `HF_ENDPOINT`, `HF_TOKEN` and the hub's other variables apply.
The store decides which hashes are expected after the first fetch.
"""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from spool.catalogue.child import run_child
from spool.catalogue.entries import FileHash, HubSource
from spool.catalogue.packages import NO_SPACE, hash_of
from spool.errors import ChecksumMismatch, DiskFull, ModelUnavailable

_FAILED = 3
_QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def fetch_from_hub(
    source: HubSource,
    work: Path,
    target: Path,
    *,
    revision: str,
    pinned: Mapping[str, FileHash],
    seconds: float,
    on_bytes: Callable[[int, int | None], None],
) -> str:
    """Writes the source's files at `revision` into `target` and returns its commit.

    `pinned` are the hashes of an earlier fetch, by path; the hub's own are checked if it states them. Raises
    ModelUnavailable when the hub cannot be reached or refuses, ChecksumMismatch when any byte differs,
    DiskFull.
    """
    files, plan = work / "files", work / "plan.json"
    plan.unlink(missing_ok=True)
    ended = run_child(
        ["-m", "spool.catalogue.hub", source.id, revision, str(work), *source.files],
        _QUIET,
        work,
        seconds=seconds,
        on_bytes=lambda count: on_bytes(count, _total(plan)),
    )
    if ended.code is None:
        raise ModelUnavailable(f"the download of {source.id} did not end in time")
    if NO_SPACE.search(ended.output):
        raise DiskFull(f"No space is left to download {source.id}.")
    if ended.code != 0 or not plan.is_file():
        lines = [line for line in ended.output.splitlines() if line.strip()]
        raise ModelUnavailable(lines[-1][:300] if lines else f"the download of {source.id} failed")
    stated = json.loads(plan.read_text())
    for path, facts in stated["files"].items():
        have = hash_of(files / path)
        expected = {facts["sha256"], pinned[path].sha256 if path in pinned else None} - {None}
        if have.bytes != facts["bytes"] or not expected <= {have.sha256}:
            shutil.rmtree(work)
            raise ChecksumMismatch(
                f"{path} of {source.id} is not the file that the hub announced or that was fetched before."
            )
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (files / path).replace(target / path)
    return str(stated["commit"])


def _total(plan: Path) -> int | None:
    """The bytes of all files, once the hub has reported them."""
    try:
        total: int = sum(facts["bytes"] for facts in json.loads(plan.read_text())["files"].values())
        return total
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def choose_files(offered: Mapping[str, Any], patterns: tuple[str, ...]) -> dict[str, Any]:
    """The offered files that a pattern matches. Raises LookupError for a pattern that matches none."""
    chosen: dict[str, Any] = {}
    for pattern in patterns:
        named = {name: facts for name, facts in offered.items() if fnmatchcase(name, pattern)}
        if not named:
            raise LookupError(f"has no {pattern}")
        chosen |= named
    unsafe = [
        name for name in chosen if name.startswith(("/", ".")) or ".." in name.split("/") or "\\" in name
    ]
    if unsafe:
        raise LookupError(f"offers the file name {unsafe[0]!r}, which is refused")
    return chosen


def _download(hub_id: str, revision: str, work: Path, patterns: tuple[str, ...]) -> None:
    from huggingface_hub import HfApi, hf_hub_download  # only in the worker extra

    info = HfApi().model_info(hub_id, revision=revision, files_metadata=True)
    offered = {
        sibling.rfilename: {
            "bytes": sibling.size,
            "sha256": sibling.lfs.sha256 if sibling.lfs else None,
        }
        for sibling in info.siblings or []
    }
    chosen = choose_files(offered, patterns)
    plan = work / "plan.part"
    plan.write_text(json.dumps({"commit": info.sha, "files": chosen}))
    plan.rename(work / "plan.json")
    for name in chosen:
        hf_hub_download(hub_id, name, revision=info.sha, local_dir=work / "files")


def main(arguments: list[str]) -> int:
    """The child: `HUB_ID REVISION WORK PATTERN…`. Its last line says what went wrong."""
    hub_id, revision, work, *patterns = arguments
    try:
        _download(hub_id, revision, Path(work), tuple(patterns))
    except ImportError:
        print("huggingface_hub is not installed: it comes with Spool's worker extra")  # noqa: T201
        return _FAILED
    except LookupError as error:
        print(f"{hub_id} {error}")  # noqa: T201
        return _FAILED
    except Exception as error:  # noqa: BLE001 - httpx's, the hub's and the system's errors share no base
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        print(f"the hub cannot give {hub_id}: {reason}")  # noqa: T201
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
