"""Deepgram's streaming protocol, as `GET /v1/listen` speaks it.

Query, client messages (`KeepAlive`, `Finalize`, `CloseStream`) and server messages (`Results`,
`SpeechStarted`, `Metadata`, `Error`) have the names and shapes of Deepgram's documentation ("Live Audio");
times are seconds from the session's start.
"""

from collections.abc import Sequence
from typing import Any

from api.live.limits import SessionEnd
from api.live.protocol import Control, Protocol, parse_message
from spool.domain.jobs import Job
from spool.domain.recognition import DecodedChunk
from spool.domain.spacing import join_words
from spool.domain.transcript import Word

_CONTROLS: dict[str, Control] = {"KeepAlive": "alive", "Finalize": "finalize", "CloseStream": "close"}
_PAUSES = frozenset({"silence", "no_speech", "eou", "end", "finalize"})
"""Reasons for a final after which nobody speaks."""
_RATE = 16_000


class DeepgramProtocol(Protocol):
    """One session. `interim`: sends partials; `vad_events`: reports when somebody begins to speak;
    `acknowledges`: reports how much of the audio is stored, for clients that keep the rest."""

    def __init__(self, job: Job, *, interim: bool, vad_events: bool, acknowledges: bool = False) -> None:
        self._job, self._interim, self._vad_events = job, interim, vad_events
        self._acknowledges = acknowledges

    def control(self, text: str) -> Control:
        """What a text frame means."""
        kind = parse_message(text).get("type")
        control = _CONTROLS.get(kind) if isinstance(kind, str) else None
        if control is None:
            known = ", ".join(_CONTROLS)
            raise SessionEnd(
                1003, f'Audio goes in binary frames; a text frame is {{"type": …}} with {known}.'
            )
        return control

    def partial(self, message: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """An interim `Results`, if requested."""
        if not self._interim or not message["text"]:
            return ()
        start, end = float(message["start"]), float(message["end"])
        words = [Word.model_validate(word) for word in message["words"]]
        alternative = _alternative(message["text"], words)
        return (self._results(start, end, alternative, is_final=False, speech_final=False),)

    def final(self, chunk: DecodedChunk, reason: str) -> Sequence[dict[str, Any]]:
        """A final `Results`; none for silence, unless `Finalize` asked for it."""
        if not chunk.heard.words and reason != "finalize":
            return ()
        alternative = _alternative(join_words(word.text for word in chunk.heard.words), chunk.heard.words)
        start, end = chunk.span.core_start / _RATE, chunk.span.core_end / _RATE
        message = self._results(start, end, alternative, is_final=True, speech_final=reason in _PAUSES)
        return (message | {"from_finalize": reason == "finalize"},)

    def report_stored(self, size: int, seconds: float) -> Sequence[dict[str, Any]]:
        """`Stored`, an extension of Spool: these bytes are in the recording whatever process dies."""
        if not self._acknowledges:
            return ()
        message = {"type": "Stored", "request_id": self._job.id, "bytes": size, "duration": round(seconds, 3)}
        return (message,)

    def report_resumed(self, size: int, seconds: float) -> Sequence[dict[str, Any]]:
        """`Resumed`, an extension of Spool."""
        message = {"type": "Resumed", "request_id": self._job.id, "bytes": size}
        return (message | {"duration": round(seconds, 3)},)

    def event(self, kind: str, seconds: float) -> Sequence[dict[str, Any]]:
        """`SpeechStarted`, and the turns that a model for dialogue reports."""
        if kind == "speech_started":
            if not self._vad_events:
                return ()
            return ({"type": "SpeechStarted", "channel": [0], "timestamp": seconds},)
        if kind == "eou":
            return ({"type": "UtteranceEnd", "channel": [0], "last_word_end": seconds},)
        return ()

    def end(self, job: Job) -> Sequence[dict[str, Any]]:
        """The message `Metadata`."""
        live = job.options.live
        return (
            {
                "type": "Metadata",
                "transaction_key": "deprecated",
                "request_id": job.id,
                "sha256": job.content_sha256 or "",
                "created": job.created_at.isoformat(),
                "duration": job.audio_seconds or 0.0,
                "channels": 1 if live is None else live.channels,
                "models": [job.options.model],
            },
        )

    def error(self, code: int, sentence: str) -> Sequence[dict[str, Any]]:
        """The message `Error`."""
        return ({"type": "Error", "code": str(code), "description": sentence, "message": sentence},)

    def _results(
        self, start: float, end: float, alternative: dict[str, Any], *, is_final: bool, speech_final: bool
    ) -> dict[str, Any]:
        model = self._job.options.model
        return {
            "type": "Results",
            "channel_index": [0, 1],
            "start": round(start, 3),
            "duration": round(end - start, 3),
            "is_final": is_final,
            "speech_final": speech_final,
            "channel": {"alternatives": [alternative]},
            "metadata": {
                "request_id": self._job.id,
                "model_info": {"name": model, "version": "", "arch": ""},
                "model_uuid": model,
            },
        }


def _alternative(text: str, words: Sequence[Word]) -> dict[str, Any]:
    confidence = sum(word.confidence for word in words) / len(words) if words else 0.0
    return {"transcript": text, "confidence": round(confidence, 4), "words": [_word(word) for word in words]}


def _word(word: Word) -> dict[str, Any]:
    return {
        "word": word.text,
        "start": word.start,
        "end": word.end,
        "confidence": round(word.confidence, 4),
        "punctuated_word": word.text,
    }
