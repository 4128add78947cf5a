"""OpenAI's Realtime protocol, transcription only, as `GET /v1/realtime` speaks it.

A client first sends `session.update` with its configuration, then audio as base64 in
`input_audio_buffer.append`. Each utterance is an item: its deltas contain only text that will no longer
change, `completed` is the final. Deltas cannot be taken back, so words that may change are not sent.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from api.live.limits import SessionEnd
from api.live.protocol import Control, Protocol, parse_message
from spool.domain.jobs import Job
from spool.domain.recognition import DecodedChunk
from spool.domain.spacing import join_words

RATE = 24_000
SILENCE_MS = 500
"""The defaults of `server_vad`."""
_PREFIX = "conversation.item.input_audio_transcription"
_CONTROLS: dict[str, Control] = {"input_audio_buffer.commit": "finalize"}
_PAUSES = frozenset({"silence", "no_speech", "eou"})
_MS_A_SAMPLE = 1000 / 16_000


def query_of(text: str, model: str | None) -> list[tuple[str, str]]:
    """A `session.update` as the query of a session; `model` is the default. Raises SessionEnd."""
    message = _message(text)
    session = message.get("session")
    if message["type"] != "session.update" or not isinstance(session, dict):
        raise _refuse("Send session.update first, with the session's configuration")
    if session.get("type") != "transcription":
        raise _refuse("session.type: must be transcription")
    _refuse_others(session, "session", {"type", "audio", "include"})
    if session.get("include"):
        raise _refuse("session.include: is not supported")
    audio = _section(session, "audio", {"input"}, "session.audio")
    heard = _section(
        audio,
        "input",
        {"format", "transcription", "turn_detection", "noise_reduction"},
        "session.audio.input",
    )
    if heard.get("noise_reduction") is not None:
        raise _refuse("session.audio.input.noise_reduction: is not supported; leave it out")
    form = _section(heard, "format", {"type", "rate"}, "session.audio.input.format")
    if form.get("type", "audio/pcm") != "audio/pcm":
        raise _refuse("session.audio.input.format.type: must be audio/pcm, 16 bits, little-endian")
    asked = _section(
        heard, "transcription", {"model", "language", "prompt"}, "session.audio.input.transcription"
    )
    if asked.get("prompt"):
        raise _refuse("session.audio.input.transcription.prompt: is not supported by live sessions")
    query = [("sample_rate", str(form.get("rate", RATE))), ("endpointing", _read_endpointing(heard))]
    name = asked.get("model", model)
    return query if name is None else [*query, ("model", str(name))]


def _read_endpointing(heard: Mapping[str, Any]) -> str:
    """Milliseconds of silence that end an utterance, or `false` if only a commit ends it."""
    if "turn_detection" in heard and heard["turn_detection"] is None:
        return "false"
    where = "session.audio.input.turn_detection"
    turns = _section(
        heard, "turn_detection", {"type", "silence_duration_ms", "threshold", "prefix_padding_ms"}, where
    )
    if turns.get("type", "server_vad") != "server_vad":
        raise _refuse(f"{where}.type: must be server_vad, or turn_detection null")
    return str(turns.get("silence_duration_ms", SILENCE_MS))


class RealtimeProtocol(Protocol):
    """The state of one session."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._numbers = count()
        self._number = 0  # the item that is being spoken
        self._said = ""
        self._last: str | None = None

    def control(self, text: str) -> Control:
        """What an event means, other than audio."""
        kind = _message(text)["type"]
        control = _CONTROLS.get(kind)
        if control is None:
            known = ", ".join(["input_audio_buffer.append", *_CONTROLS])
            raise _refuse(f"{str(kind)[:60]}: is not expected now; send {known}")
        return control

    def audio(self, text: str) -> bytes | None:
        """The audio of `input_audio_buffer.append`; None for another event."""
        message = _message(text)
        if message["type"] != "input_audio_buffer.append":
            return None
        try:
            return base64.b64decode(message.get("audio", ""), validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise SessionEnd(1007, "audio: must be 16-bit PCM in base64") from None

    def check_audio(self, *, binary: bool) -> None:
        """Audio comes as text in this protocol."""
        if binary:
            raise SessionEnd(1003, "Audio goes in input_audio_buffer.append, as base64.")

    def report_created(self) -> Sequence[dict[str, Any]]:
        """The events once the session is open."""
        return (self._event("session.updated", session=self._session()),)

    def partial(self, message: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """What became stable since the last delta."""
        number, stable = int(message["number"]), str(message["stable"])
        if number != self._number:
            self._number, self._said = number, ""
        if len(stable) <= len(self._said) or not stable.startswith(self._said):
            return ()
        delta, self._said = stable[len(self._said) :], stable
        return (self._delta(number, delta),)

    def final(self, chunk: DecodedChunk, reason: str) -> Sequence[dict[str, Any]]:
        """The rest of the item, then the whole item."""
        sent = self._said if chunk.span.index == self._number else ""
        self._number, self._said = chunk.span.index + 1, ""
        if not chunk.heard.words and reason != "finalize":
            return ()
        text = join_words(word.text for word in chunk.heard.words)
        item = self._item(chunk.span.index)
        events = []
        if reason in _PAUSES:
            end = round(chunk.span.core_end * _MS_A_SAMPLE)
            events.append(self._event("input_audio_buffer.speech_stopped", item_id=item, audio_end_ms=end))
        committed = self._event("input_audio_buffer.committed", item_id=item, previous_item_id=self._last)
        events.append(committed)
        if text.startswith(sent) and len(text) > len(sent):
            events.append(self._delta(chunk.span.index, text[len(sent) :]))
        seconds = round((chunk.span.core_end - chunk.span.core_start) * _MS_A_SAMPLE / 1000, 3)
        completed = self._event(
            f"{_PREFIX}.completed",
            item_id=item,
            content_index=0,
            transcript=text,
            usage={"type": "duration", "seconds": seconds},
        )
        self._last = item
        return (*events, completed)

    def event(self, kind: str, seconds: float) -> Sequence[dict[str, Any]]:
        """`speech_started`."""
        if kind != "speech_started":
            return ()
        started = self._event(
            "input_audio_buffer.speech_started",
            item_id=self._item(self._number),
            audio_start_ms=round(1000 * seconds),
        )
        return (started,)

    def end(self, job: Job) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """Empty: in this protocol a client leaves when it has what it wants."""
        return ()

    def error(self, code: int, sentence: str) -> Sequence[dict[str, Any]]:
        """The event `error`."""
        return (error_event(code, sentence),)

    def _delta(self, number: int, text: str) -> dict[str, Any]:
        return self._event(f"{_PREFIX}.delta", item_id=self._item(number), content_index=0, delta=text)

    def _item(self, number: int) -> str:
        return f"item_{self._job.id.removeprefix('job_')}_{number}"

    def _event(self, kind: str, **fields: object) -> dict[str, Any]:
        event_id = f"event_{self._job.id.removeprefix('job_')}_{next(self._numbers)}"
        return {"type": kind, "event_id": event_id, **fields}

    def _session(self) -> dict[str, Any]:
        live = self._job.options.live
        assert live is not None
        silence = live.silence_ms
        turns = None if silence is None else {"type": "server_vad", "silence_duration_ms": silence}
        return {
            "id": self._job.id,
            "object": "realtime.transcription_session",
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": live.sample_rate},
                    "transcription": {"model": self._job.options.model},
                    "turn_detection": turns,
                }
            },
        }


def error_event(code: int, sentence: str) -> dict[str, Any]:
    """The event before a session is closed early."""
    kind = "server_error" if code in {1011, 1013} else "invalid_request_error"
    fields = {"type": kind, "code": str(code), "message": sentence, "param": None, "event_id": None}
    return {"type": "error", "event_id": f"event_error_{code}", "error": fields}


def _message(text: str) -> dict[str, Any]:
    message = parse_message(text)
    if not isinstance(message.get("type"), str):
        raise _refuse("Each message is a JSON object with a type")
    return message


def _section(parent: Mapping[str, Any], name: str, known: set[str], where: str) -> dict[str, Any]:
    """A part of the configuration; empty if it is missing."""
    section = parent.get(name)
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise _refuse(f"{where}: must be an object")
    _refuse_others(section, where, known)
    return section


def _refuse_others(section: Mapping[str, Any], where: str, known: set[str]) -> None:
    for name in sorted(section.keys() - known):
        if section[name] is not None:
            raise _refuse(f"{where}.{name[:60]}: is not a known option")


def _refuse(sentence: str) -> SessionEnd:
    return SessionEnd(1003, f"{sentence}.")
