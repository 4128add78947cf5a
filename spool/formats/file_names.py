"""The name of a transcript's file, from a recording's name. Pure; opens nothing."""

from pathlib import PurePosixPath

from spool.formats import FORMATS, Format

SUFFIXES: dict[Format, str] = {form: f".{form}" for form in FORMATS} | {
    "paragraphs": ".paragraphs.txt",
    "textgrid": ".TextGrid",
    "ohms": ".ohms.vtt",
    "lattice": ".lattice.json",
    "kaldi": ".ark",
}
_LONGEST_NAME = 80
"""The most characters; in UTF-8 with a suffix they fit the limits of file systems."""


def file_name(name: str, suffix: str) -> PurePosixPath:
    """The relative path of a transcript of this name, which never leaves its folder, whatever the name."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in {"/", "..", "."}]
    *folders, last = [part[:_LONGEST_NAME] for part in parts] or ["transcript"]
    return PurePosixPath(*folders, f"{last}{suffix}")


def free_name(name: str, suffix: str, job_id: str, taken: set[str]) -> PurePosixPath:
    """`file_name`, with the job's id in front if `taken` has the name, ignoring case as the file systems of
    Macs and Windows do; adds it to `taken`."""
    path = file_name(name, suffix)
    if str(path).casefold() in taken:
        path = path.with_name(f"{job_id} {path.name}")
    taken.add(str(path).casefold())
    return path
