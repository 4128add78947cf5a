"""What a live session asks of the engine's process and what it is answered. Plain data, without MLX."""

from dataclasses import dataclass

from worker.live.endpoint import EndpointRules
from worker.live.events import Event


@dataclass(frozen=True, slots=True)
class LiveFeed:
    """The next samples of a session.

    offset: samples of the session that came before these; 0 opens it, and opens it anew where it is known.
    last: nothing comes after these. more: the next ones wait already, since the session is behind. gone: give
    the session up; the samples do not count. replay: these were sent before, to a process that has died or to
    a step that failed. endpoints, restarts, detects: as in `worker.live.session.LiveOptions`.
    """

    session: str
    offset: int
    last: bool = False
    more: bool = False
    gone: bool = False
    replay: bool = False
    endpoints: EndpointRules | None = None
    restarts: bool = False
    detects: bool = False


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """What became known, in order, and the seconds of audio to a step of this session."""

    events: tuple[Event, ...]
    chunk_seconds: float
