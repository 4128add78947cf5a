"""`spool-worker speech`: whether anyone speaks in files, without a queue and without transcribing.

The contract of `--format json`, one object a file, in the order given:

    {"file", "duration", "frame_seconds": 0.032, "probabilities": [...], "spans": [{"label", "start", "end"}]}
    {"file", "error": {"code", "message"}}        for a file that failed

Probabilities have seven decimals, times are seconds. Spans cover the recording without a gap; their labels
are `speech`, `no_speech` (nothing there needs decoding) and `unclear`. A span of `no_speech` in which nothing
is louder than -60 dBFS has `"silent": true`.
"""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from worker.cli.per_file import Row, exit_by, mono_blocks, print_json, round_values, rows_of


def speech(
    *files: Annotated[Path, Parameter(name="FILE", help="Recordings to analyse.", required=True)],
    _form: Annotated[Literal["json"], Parameter(name="--format", help="Output format.")] = "json",
) -> None:
    """Print where there is speech, and the probability of speech every 32 ms."""
    from worker.audio.resample import SAMPLE_RATE
    from worker.speech.detector import FRAME_SECONDS, SpeechDetector
    from worker.speech.listener import SpeechListener
    from worker.speech.spans import label_spans

    detector = SpeechDetector.load()

    def detect(path: Path) -> Row:
        listener = SpeechListener(detector)
        for block in mono_blocks(path):
            listener.push(block)
        listener.finish()
        spans = label_spans(listener.probabilities, listener.samples, levels=listener.levels)
        return {
            "duration": listener.samples / SAMPLE_RATE,
            "frame_seconds": FRAME_SECONDS,
            "probabilities": round_values(listener.probabilities),
            "spans": [
                {"label": span.label, "start": round(span.start, 3), "end": round(span.end, 3)}
                | ({"silent": True} if span.silent else {})
                for span in spans
            ],
        }

    rows = rows_of(list(files), detect)
    print_json(rows)
    exit_by(rows)
