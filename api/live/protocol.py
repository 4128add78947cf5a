"""What the protocols of live sessions have in common: reading a client's text, and building messages to
it."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spool.domain.jobs import Job
from spool.domain.live.options import Listening
from spool.domain.options import JobOptions
from spool.domain.recognition import DecodedChunk
from spool.schemas.jobs import UploadRequest

Control = Literal["start", "alive", "finalize", "close"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What a client asks for when it connects."""

    options: JobOptions
    body: UploadRequest
    """The job's name, project, pool and tags."""

    @property
    def listening(self) -> Listening:
        """The live part of the options."""
        assert self.options.live is not None
        return self.options.live


def parse_message(text: str) -> dict[str, Any]:
    """The JSON object in a text frame; empty if it is none."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):  # a frame may nest 100,000 lists
        return {}
    return message if isinstance(message, dict) else {}


class Protocol(ABC):
    """One session's words on the wire. Messages are JSON objects, each sent as text."""

    @abstractmethod
    def control(self, text: str) -> Control:
        """What a text frame means. Raises SessionEnd for one without a meaning."""

    def report_started(self) -> Sequence[dict[str, Any]]:
        """The answer to the control `start`."""
        return ()

    def audio(self, text: str) -> bytes | None:  # noqa: ARG002
        """The audio in a text frame, if the protocol sends it like that; None for any other text frame."""
        return None

    def check_audio(self, *, binary: bool) -> None:  # noqa: B027 - most take audio at any time
        """Raise SessionEnd if audio may not come now, or not as a binary frame."""

    @abstractmethod
    def partial(self, message: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """The messages for a partial: `start` and `end` in seconds, `text`, `stable`, its first part that
        will not change, and `words` (`text`, `start`, `end`, `confidence`)."""

    @abstractmethod
    def final(self, chunk: DecodedChunk, reason: str) -> Sequence[dict[str, Any]]:
        """The messages for a saved chunk; `reason` is that of `worker.live.endpoint`, or `finalize`."""

    def report_stored(self, size: int, seconds: float) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """The messages once this much audio is stored durably."""
        return ()

    def report_resumed(self, size: int, seconds: float) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """The first messages of a resumed session: how much of its audio is stored. The client continues
        after it."""
        return ()

    def event(self, kind: str, seconds: float) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """The messages for a mark between words: `eou`, `eob`, `speech_started`."""
        return ()

    @property
    def is_over(self) -> bool:
        """Whether the last message ends the session."""
        return False

    @abstractmethod
    def end(self, job: Job) -> Sequence[dict[str, Any]]:
        """The last messages of a session that is done."""

    @abstractmethod
    def error(self, code: int, sentence: str) -> Sequence[dict[str, Any]]:
        """The messages before a session is closed early."""
