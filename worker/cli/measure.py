"""`spool-worker measure`: the lengths of recordings by their headers, for `spool plan --measured`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from spool.errors import InvalidRequest


def measure(
    *places: Annotated[
        Path, Parameter(name="PLACE", help="Recordings, or folders of recordings.", required=True)
    ],
    as_json: Annotated[
        bool, Parameter(name="--json", help="Print one JSON object with every recording.")
    ] = False,
) -> None:
    """Print the lengths of recordings according to their headers; unreadable files are named on stderr."""
    from spool.errors import AudioEmpty, SpoolError
    from worker.audio import open_audio

    recordings: list[dict[str, object]] = []
    seconds, size = 0.0, 0
    for path in _files(list(places)):
        try:
            with open_audio(path) as audio:
                length = audio.expected_seconds
            if not length:
                raise AudioEmpty(f"{path.name}: its header does not state its length")
        except SpoolError as error:
            print(f"spool-worker: skipped: {error.message}", file=sys.stderr)
            continue
        recordings.append({"seconds": round(length, 3), "bytes": path.stat().st_size})
        seconds, size = seconds + length, size + path.stat().st_size
    if as_json:
        print(json.dumps({"recordings": recordings}))
    else:
        print(f"{len(recordings)} recordings, {seconds / 3600:.2f} h, {size / 2**20:.1f} MiB")


def _files(places: list[Path]) -> Iterator[Path]:
    for place in places:
        if not place.exists():
            raise InvalidRequest(f"{place}: there is no such file or folder.")
        if place.is_dir():
            yield from (path for path in sorted(place.rglob("*")) if path.is_file())
        else:
            yield place
