"""`spool-worker diarize`: who speaks when in files, without a queue and without a transcript.

The contract of `--format json`, one object a file, in the order given:

    {"file", "duration", "speakers", "segments": [{"speaker", "start", "end"}]}
    {"file", "error": {"code", "message"}}        for a file that failed

Times are seconds; speakers are numbered from 0 as they first speak. With `--model`, a Sortformer, each object
has `frame_seconds` and `probabilities` too: a row for each frame with a number for each speaker, to seven
decimals; `speaker` is then the row's column. `--format rttm` prints NIST's lines for all files, one after
another, and errors on stderr.
"""

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from spool.commandline.speakers import SpeakerCount
from spool.domain.archive.diarization import Diarization
from spool.errors import InvalidRequest
from worker.audio.resample import SAMPLE_RATE
from worker.cli.per_file import Row, exit_by, mono_blocks, print_json, round_values, rows_of
from worker.diarization.base import SpeakerBounds, SpeakerSegment, run_here
from worker.machine.blas import preload_blas


class SettingName(StrEnum):
    """A Sortformer's streaming setting (`worker.diarization.sortformer.SETTINGS`)."""

    default = "default"
    offline = "offline"
    low = "low"
    high = "high"
    very_high = "very_high"


TuningName = Literal["none", "callhome-v1", "dihard3-v1", "callhome-v2", "dihard3-v2"]
"""What segments are tuned for (`worker.diarization.activity.TUNED`)."""


Sortformer = Annotated[
    Path | None,
    Parameter(
        name="--model",
        help="A Sortformer instead of the default diarizer: a .nemo file, or a name in the catalogue.",
    ),
]
How = Annotated[
    SettingName | None,
    Parameter(
        name="--setting",
        help="How a Sortformer processes a recording: whole (offline), with its file's streaming constants "
        "(default), or with a preset named by its latency.",
    ),
]
Tuning = Annotated[
    TuningName | None,
    Parameter(
        name="--tuned-for",
        help="Thresholds and padding of a Sortformer's segments, as NVIDIA tuned them for a data set's DER "
        "with a collar; none: 0.5 and no padding.",
    ),
]


def diarize(
    *files: Annotated[Path, Parameter(name="FILE", help="Recordings to analyse.", required=True)],
    model: Sortformer = None,
    setting: How = None,
    tuned_for: Tuning = None,
    known: SpeakerCount = SpeakerCount(),
    form: Annotated[Literal["json", "rttm"], Parameter(name="--format", help="Output format.")] = "json",
) -> None:
    """Print who speaks when. If you know the number of speakers, give it: nothing helps the default diarizer
    more."""
    diarization = Diarization.model_validate({"speakers": known.to_request()})
    preload_blas()
    from worker.diarization.timeline import render_rttm

    if model is None:
        for name, given in (("--setting", setting), ("--tuned-for", tuned_for)):
            if given is not None:
                raise InvalidRequest(f"{name} is for a Sortformer; name one with --model")
        diarize_file = _default(diarization)
    else:
        diarize_file = _sortformer(
            str(model), diarization, setting or SettingName.default, tuned_for or "none"
        )
    rttm: list[str] = []

    def work(path: Path) -> Row:
        segments, samples, more = diarize_file(path)
        rttm.append(render_rttm(segments, path.stem))
        return {
            "duration": samples / SAMPLE_RATE,
            "speakers": len({segment.speaker for segment in segments}),
            **more,
            "segments": [
                {"speaker": segment.speaker, "start": round(segment.start, 3), "end": round(segment.end, 3)}
                for segment in segments
            ],
        }

    rows = rows_of(list(files), work)
    if form == "json":
        print_json(rows)
    else:
        print("".join(rttm), end="")
        for row in rows:
            if "error" in row:
                print(f"spool-worker: {row['file']}: {row['error']['message']}", file=sys.stderr)
    exit_by(rows)


DiarizeFile = Callable[[Path], tuple[list[SpeakerSegment], int, Row]]
"""The segments of a file, its samples, and what else is printed."""


def _default(diarization: Diarization) -> DiarizeFile:
    from worker.diarization.registry import load_diarization, load_network

    model, bounds = load_diarization(diarization.model), SpeakerBounds(diarization.least, diarization.most)
    run = run_here(load_network(model.path))

    def diarize_file(path: Path) -> tuple[list[SpeakerSegment], int, Row]:
        result = model.diarize(lambda: mono_blocks(path), run, bounds)
        return result.segments, result.samples, {}

    return diarize_file


def _sortformer(name: str, diarization: Diarization, setting: SettingName, tuning: TuningName) -> DiarizeFile:
    from worker.diarization.activity import TUNED, active_segments
    from worker.diarization.registry import load_network, load_sortformer_model, sortformer_file

    model = load_sortformer_model(sortformer_file(name))
    if diarization.least > model.config.speakers:
        raise InvalidRequest(
            f"{name} tells at most {model.config.speakers} speakers apart, not {diarization.least}; "
            "leave --model out"
        )
    run = run_here(load_network(model.path))

    def diarize_file(path: Path) -> tuple[list[SpeakerSegment], int, Row]:
        result = model.follow(lambda: mono_blocks(path), run, setting.value)
        segments = active_segments(result.probabilities, model.frame_seconds, TUNED[tuning])
        probabilities = [round_values(row) for row in result.probabilities]
        return (
            segments,
            result.samples,
            {"frame_seconds": model.frame_seconds, "probabilities": probabilities},
        )

    return diarize_file
