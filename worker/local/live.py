"""Runs a file through a live session, in blocks as a client would send them.

The contract of `spool-worker listen`, one object a line, as they become known:

    {"type": "partial", "start", "end", "text", "stable_text", "tokens", "times", "stable",
     "words": [{"text", "start", "end", "confidence"}]}
    {"type": "final", "reason", "start", "end", "text", "tokens", "times", "durations",
     "words": [{"text", "start", "end", "confidence"}]}
    {"type": "eou" | "eob", "time"}, {"type": "speech_started", "time"}
    {"type": "end", "duration", "frames", "nbest": [{"tokens", "times", "durations", "score", "text"}]}

`start`, `end` and `time` are seconds from the file's start, `times` and `durations` encoder frames.
`stable` counts the partial's first tokens that will not change. `reason`: silence, no_speech, length, eou or
end. `nbest` is present if more than one was asked for.

Imports MLX, so import it only in the process that decodes, and only when needed.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worker.audio import SAMPLE_RATE, open_audio
from worker.live.events import End, Event, Final, Mark, Partial
from worker.live.group import LiveGroup
from worker.live.session import LiveOptions
from worker.local.report import NBEST_DIGITS
from worker.models.base import SpeechModel, Tokenizer


def listen_to(path: Path, model: SpeechModel, options: LiveOptions, block_seconds: float) -> Iterator[Event]:
    """The events of a session for the file at `path`, sent in blocks of `block_seconds`.

    Raises SourceError and AudioError for a file that cannot be read, InvalidRequest for what the model cannot
    do, EngineError if its output is not finite.
    """
    group = LiveGroup(model, options)
    session = group.open()
    size = max(1, round(block_seconds * SAMPLE_RATE))
    with open_audio(path) as stream:
        for block in stream.blocks():
            for first in range(0, len(block), size):
                session.push(block[first : first + size, 0])
                yield from run_steps(group)
    session.finish()
    yield from run_steps(group)


def run_steps(group: LiveGroup) -> Iterator[Event]:
    """The events of all steps that can be made. Raises EngineError."""
    while group.is_ready:
        for result in group.step():
            if result.error is not None:
                raise result.error
            yield from result.events


def line_of(event: Event, tokenizer: Tokenizer) -> str:
    """The event as a line of the contract."""
    return json.dumps(_as_json(event, tokenizer), ensure_ascii=False, allow_nan=False)


def _as_json(event: Event, tokenizer: Tokenizer) -> dict[str, Any]:
    if isinstance(event, Partial | Final):
        kind = "partial" if isinstance(event, Partial) else "final"
        words = [word.model_dump(mode="json", exclude={"channel"}) for word in event.words]
        return {"type": kind, **asdict(event), "words": words}
    if isinstance(event, Mark):
        return {"type": event.kind, "time": event.time}
    if isinstance(event, End):
        nbest = [
            {
                "tokens": each.tokens,
                "times": each.times,
                "durations": each.durations,
                "score": round(each.score, NBEST_DIGITS),
                "text": tokenizer.decode(each.tokens).strip(),
            }
            for each in event.nbest
        ]
        shown = {"nbest": nbest} if nbest else {}
        return {"type": "end", "duration": event.duration, "frames": event.frames, **shown}
    return {"type": "speech_started", "time": event.time}
