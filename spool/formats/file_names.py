"""The name of a transcript's file, from a recording's name. Pure; opens nothing."""

import re
from pathlib import PurePosixPath

from spool.formats import FORMATS, Format

SUFFIXES: dict[Format, str] = {form: f".{form}" for form in FORMATS} | {
    "paragraphs": ".paragraphs.txt",
    "textgrid": ".TextGrid",
    "ohms": ".ohms.vtt",
    "lattice": ".lattice.json",
    "kaldi": ".ark",
    "tei": ".tei.xml",
    "pbcore": ".pbcore.xml",
}
MISSING = "missing.tsv"
"""The file in a batch's zip that names each job without a transcript, and why it has none."""
_NUMBERED = re.compile(r"line-[0-9]+")
# Windows takes none of these characters, and these names mean devices, whatever their suffix.
_NOT_PORTABLE = re.compile(r'[<>:"|?*\x00-\x1f]')
_DEVICES = {
    "aux",
    "con",
    "nul",
    "prn",
    *(f"{name}{number}" for name in ("com", "lpt") for number in range(10)),
}
_LONGEST_NAME = 80
"""The most characters; in UTF-8 with a suffix they fit the limits of file systems."""


def file_name(name: str, suffix: str) -> PurePosixPath:
    """The relative path of a transcript of this name, which never leaves its folder, whatever the name."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in {"/", "..", "."}]
    *folders, last = [part[:_LONGEST_NAME] for part in parts] or ["transcript"]
    return PurePosixPath(*folders, f"{last}{suffix}")


def choose_name(custom_id: str | None, name: str) -> str:
    """The name of a recording's files: its `custom_id`, or its own name if the `custom_id` is only the
    default of a manifest's line."""
    return name if custom_id is None or _NUMBERED.fullmatch(custom_id) else custom_id


def free_name(name: str, suffix: str, job_id: str, taken: set[str]) -> PurePosixPath:
    """`file_name` as every system can have it, with the job's id in front if `taken` has the name, ignoring
    case as the file systems of Macs and Windows do; adds it to `taken`."""
    path = PurePosixPath(*map(_portable, file_name(name, suffix).parts))
    if str(path).casefold() in taken:
        path = path.with_name(f"{job_id} {path.name}")
    taken.add(str(path).casefold())
    return path


def _portable(part: str) -> str:
    part = _NOT_PORTABLE.sub("_", part)
    part = part.rstrip(". ") or "_"
    return f"_{part}" if part.partition(".")[0].rstrip().casefold() in _DEVICES else part
