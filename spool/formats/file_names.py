"""The name of a transcript's file, from what a recording is called. Pure; opens nothing."""

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
"""Characters; in UTF-8 with a suffix they fit in what file systems take."""


def file_name(name: str, suffix: str) -> PurePosixPath:
    """Where a transcript of this name goes, below a folder and never out of it, whatever the name is."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in {"/", "..", "."}]
    *folders, last = [part[:_LONGEST_NAME] for part in parts] or ["transcript"]
    return PurePosixPath(*folders, f"{last}{suffix}")


def free_name(name: str, suffix: str, job_id: str, taken: set[str]) -> PurePosixPath:
    """`file_name`, with the job's id in front where `taken` has the name in any case of its letters, as file
    systems of Macs and Windows compare them; adds it to `taken`."""
    path = file_name(name, suffix)
    if str(path).casefold() in taken:
        path = path.with_name(f"{job_id} {path.name}")
    taken.add(str(path).casefold())
    return path
