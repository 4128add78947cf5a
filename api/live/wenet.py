"""WeNet's WebSocket protocol (`runtime/core/websocket`), as `GET /v1/listen/wenet` speaks it.

The client sends `{"signal": "start", "nbest": 1, "continuous_decoding": false}`, binary frames of 16-bit PCM
at 16 kHz, and `{"signal": "end"}`. The server answers with `server_ready`, `partial_result`, `final_result`
and `speech_end`; `nbest` is a string that holds JSON, and the times in it are milliseconds.
"""

import json
from collections.abc import Sequence
from typing import Any

from api.live.limits import SessionEnd
from api.live.protocol import Control, Protocol, parse_message
from spool.domain.jobs import Job
from spool.domain.recognition import DecodedChunk
from spool.domain.spacing import join_words


class WenetProtocol(Protocol):
    """The state of one session."""

    def __init__(self) -> None:
        self._is_started = False
        self._is_continuous = False
        self._is_over = False
        self._pending: list[dict[str, Any]] = []

    def control(self, text: str) -> Control:
        """What a signal means."""
        message = parse_message(text)
        signal = message.get("signal")
        if signal == "start" and not self._is_started:
            if message.get("nbest", 1) != 1:
                raise SessionEnd(1007, "This server returns one hypothesis; send nbest 1.")
            self._is_started = True
            self._is_continuous = message.get("continuous_decoding") is True
            return "start"
        if signal == "end" and self._is_started:
            return "close"
        raise SessionEnd(
            1003, 'Send {"signal": "start"}, then audio in binary frames, then {"signal": "end"}.'
        )

    def check_audio(self, *, binary: bool) -> None:  # noqa: ARG002
        """Raise SessionEnd for audio before the start."""
        if not self._is_started:
            raise SessionEnd(1003, 'Send {"signal": "start"} before any audio.')

    def report_started(self) -> Sequence[dict[str, Any]]:
        """The answer to the start."""
        return (_ok("server_ready"),)

    def partial(self, message: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """`partial_result`."""
        return (_result("partial_result", {"sentence": message["text"]}),) if message["text"] else ()

    def final(self, chunk: DecodedChunk, reason: str) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """`final_result`; without continuous decoding the session ends with it."""
        if not chunk.heard.words:
            return ()
        pieces = [
            {"word": word.text, "start": round(1000 * word.start), "end": round(1000 * word.end)}
            for word in chunk.heard.words
        ]
        sentence = join_words(word.text for word in chunk.heard.words)
        result = _result("final_result", {"sentence": sentence, "word_pieces": pieces})
        self._is_over = not self._is_continuous
        return (result, _ok("speech_end")) if self._is_over else (result,)

    @property
    def is_over(self) -> bool:
        """Whether the only utterance was sent, for a client without continuous decoding."""
        return self._is_over

    def end(self, job: Job) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """The message `speech_end`."""
        return (_ok("speech_end"),)

    def error(self, code: int, sentence: str) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """The message `failed`."""
        return ({"status": "failed", "message": sentence},)


def _ok(kind: str) -> dict[str, Any]:
    return {"status": "ok", "type": kind}


def _result(kind: str, best: dict[str, Any]) -> dict[str, Any]:
    return {**_ok(kind), "nbest": json.dumps([best], ensure_ascii=False, separators=(",", ":"))}
