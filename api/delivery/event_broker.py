"""Reads the event log for all open streams of a process, in one thread.

Each round begins by numbering the new events (`spool.background.event_sequencer`). An idle stream needs no
thread and no query of its own.
"""

from collections.abc import Callable, Collection

from api.delivery.sse import Progress, Stream
from spool import clock
from spool.background.event_sequencer import EventSequencer
from spool.background.thread import BackgroundLoop
from spool.settings import Settings
from spool.store import Database
from spool.store.api_keys import alive_keys
from spool.store.batch_progress import batch_counts, jobs_progress
from spool.store.event_log import last_event, read_events

WATCHED_S, IDLE_S = 0.25, 1.0
"""Seconds between two reads of the log, with open streams and without."""
_PROGRESS_S = 1.0
_KEYS_S = 4.0
_PAGE = 500


class EventBroker(BackgroundLoop):
    """Reads the log until stopped. `placed` is called after this thread numbered events."""

    def __init__(
        self, database: Database, settings: Settings, asks: Callable[[], bool], placed: Callable[[], None]
    ) -> None:
        super().__init__("spool-events")
        self._database = database
        self._sequencer = EventSequencer(database, settings.event_days, placed)
        self._settings = settings
        self._asks = asks
        self._streams: set[Stream] = set()
        self._lock = clock.Lock()
        self._position: int | None = None
        self._touched: set[str] = set()
        self._sent: dict[str, dict[str, object]] = {}
        self._next = dict.fromkeys(("progress", "keys"), 0.0)

    def attach(self, stream: Stream) -> bool:
        """Send the stream every event numbered from now on; False if there are too many streams."""
        with self._lock:
            own = sum(other.caller.key_id == stream.caller.key_id for other in self._streams)
            most = self._settings.event_streams
            # One key must not use them all.
            if len(self._streams) >= most or (stream.caller.key_id and own >= max(1, most // 2)):
                return False
            self._streams.add(stream)
        self.wake()
        return True

    def detach(self, stream: Stream) -> None:
        """Stop sending to a stream."""
        with self._lock:
            self._streams.discard(stream)

    def close_streams(self) -> None:
        """End all streams; clients reconnect, here or to another process."""
        for stream in self._open():
            stream.close()

    def run_once(self) -> float:
        """Number new events, send them to streams, and do the periodic work that is due."""
        self._sequencer.run_once(lambda: self.stopping)
        with self._database.read() as tx:
            position = last_event(tx)
        # A stream that attaches after this reads the log itself up to here.
        streams = self._open()
        if self._position is None:
            for stream in streams:
                stream.fall_behind()
        if self._position is None or not streams:
            self._position, self._sent = position, {}
        elif position > self._position:
            self._position = self._pass_on(self._position, position)
        if streams and self._is_due("progress", _PROGRESS_S):
            self._send_progress(streams)
        if streams and self._is_due("keys", _KEYS_S):
            self._close_unauthorized(streams)
        return WATCHED_S if streams else IDLE_S

    def _pass_on(self, after: int, position: int) -> int:
        """Send the streams their events up to `position`; returns the position reached."""
        while after < position and not self.stopping:
            with self._database.read() as tx:
                block = read_events(tx, after, _PAGE, until=position)
            streams = self._open()
            for stream in streams:
                if wanted := [event for event in block if stream.wants(event)]:
                    stream.offer(wanted)
            watched = {stream.batch_id for stream in streams}
            self._touched |= {
                event.batch_id for event in block if event.batch_id in watched and event.batch_id
            }
            after = block[-1].id if len(block) == _PAGE else position
        return after

    def _send_progress(self, streams: Collection[Stream]) -> None:
        jobs = {stream.job_id for stream in streams if stream.job_id}
        with self._database.read() as tx:
            now = {
                job_id: ("job.progress", progress)
                for job_id, progress in jobs_progress(tx, sorted(jobs)).items()
            }
            for batch_id, counts in batch_counts(tx, sorted(self._touched)).items():
                states = {state.value: number for state, number in counts.items()}
                now[batch_id] = ("batch.progress", {"jobs": states})
        self._touched.clear()
        for stream in streams:
            subject = stream.job_id or stream.batch_id or ""
            if subject in now and self._sent.get(subject) != now[subject][1]:
                stream.offer([Progress(*now[subject])])
        self._sent |= {subject: progress for subject, (_, progress) in now.items()}

    def _close_unauthorized(self, streams: Collection[Stream]) -> None:
        """End streams whose key is no longer valid, and those without a key once one is required."""
        ids = {stream.caller.key_id for stream in streams if stream.caller.key_id}
        with self._database.read() as tx:
            alive = alive_keys(tx, sorted(ids))
        for stream in streams:
            key_id = stream.caller.key_id
            if key_id not in alive if key_id else stream.caller.is_anybody and self._asks():
                stream.close()

    def _is_due(self, name: str, seconds: float) -> bool:
        now = clock.monotonic()
        if now < self._next[name]:
            return False
        self._next[name] = now + seconds
        return True

    def _open(self) -> list[Stream]:
        with self._lock:
            return list(self._streams)
