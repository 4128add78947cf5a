"""What the protocols of live sessions have in common: what a client's text means, and what it is told."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spool.domain.jobs import Job
from spool.domain.live.options import Listening
from spool.domain.options import JobOptions
from spool.schemas.jobs import UploadRequest
from spool.store.chunks import SavedChunk

Control = Literal["start", "alive", "finalize", "close"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a client asks for when it connects."""

    options: JobOptions
    body: UploadRequest
    """Its name, project, pool and tags."""

    @property
    def listening(self) -> Listening:
        """The live part of the options."""
        assert self.options.live is not None
        return self.options.live


class Protocol(ABC):
    """One session's words on the wire. Messages are JSON objects, each sent as text."""

    @abstractmethod
    def control(self, text: str) -> Control:
        """What a text frame means. Raises Ended for one that means nothing."""

    def started(self) -> Sequence[dict[str, Any]]:
        """What is said to the control `start`."""
        return ()

    def audio(self, text: str) -> bytes | None:  # noqa: ARG002
        """The audio in a text frame, where that is how it comes; None for what else a text frame means."""
        return None

    def check_audio(self, *, binary: bool) -> None:  # noqa: B027 - most take audio at any time
        """Raise Ended where audio may not come now, or not as a binary frame."""

    @abstractmethod
    def partial(self, message: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """What is said of a partial: `start` and `end` in seconds, `text`, `stable`, its first part that will
        not change, and `words` (`text`, `start`, `end`, `confidence`)."""

    @abstractmethod
    def final(self, chunk: SavedChunk, reason: str) -> Sequence[dict[str, Any]]:
        """What is said of a chunk that was saved; `reason` is that of `worker.live.endpoint`, or
        `finalize`."""

    def stored(self, size: int, seconds: float) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """What is said when so much of the audio has been stored for good."""
        return ()

    def resumed(self, size: int, seconds: float) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """What is said first of a session that goes on here: how much of its audio is stored. The client goes
        on behind it."""
        return ()

    def event(self, kind: str, seconds: float) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """What is said of a mark between words: `eou`, `eob`, `speech_started`."""
        return ()

    @property
    def is_over(self) -> bool:
        """Whether what was said last ends the session."""
        return False

    @abstractmethod
    def end(self, job: Job) -> Sequence[dict[str, Any]]:
        """What is said last of a session that is done."""

    @abstractmethod
    def error(self, code: int, sentence: str) -> Sequence[dict[str, Any]]:
        """What is said before a session is closed early."""
