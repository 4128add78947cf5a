"""Virtual time, and threads of which one runs at a time, in an order that a seed decides.

A thread is a greenlet: it runs until it waits, and then the seed chooses among those that could run. Time
stands still while one of them can, and then jumps to the next alarm. A process is a group of threads with a
clock of its own; it can be frozen, thawed and killed at any point where one of its threads waits. What is
killed is never resumed, so no `finally` of it runs, as after SIGKILL.
"""

import heapq
import itertools
import math
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import greenlet

from spool import clock
from tests.simulation.product import Product

NS = 1_000_000_000
BEGAN = 1_801_439_760 * NS
"""The instant at which every run begins, in Unix nanoseconds: 2027-01-31, four minutes before midnight."""
MOST_TURNS_AT_ONCE = 1_000_000


@dataclass(eq=False)
class Process:
    """A simulated process. `skew_ns`: how far its host's clock is ahead; `ends` are called when it ends;
    `killed`: it did not end by itself; `troubles`: when something kept it from its work."""

    name: str
    skew_ns: int = 0
    product: Product = field(default_factory=Product)
    frozen: bool = False
    dead: bool = False
    killed: bool = False
    frozen_ns: int = 0
    troubles: list[tuple[int, int]] = field(default_factory=list)
    draining_since_ns: int | None = None
    children: "list[Process]" = field(default_factory=list)
    held: "list[Task]" = field(default_factory=list)
    ends: list[Callable[[], None]] = field(default_factory=list)

    def troubled_s(self, since_ns: int) -> float:
        """How long something has kept it from its work since then."""
        return sum(max(0, end - max(since_ns, start)) for start, end in self.troubles) / NS

    def longest_trouble_s(self, since_ns: int) -> float:
        """The longest of what has kept it from its work, and ended since then."""
        return max((end - start for start, end in self.troubles if end >= since_ns), default=0) / NS


class Task:
    """A thread of a process. `turn` counts its waits: an alarm of an earlier one is stale."""

    def __init__(self, process: Process, name: str) -> None:
        self.process, self.name = process, name
        self.greenlet: greenlet.greenlet | None = None
        self.turn = 0
        self.ready = False
        self.ended = False


class Stalled(Exception):
    """Threads pass the turn to each other, and time does not move."""


class Scheduler:
    """A `spool.clock.Simulation`. `fail` is called with what a thread raised to its end."""

    def __init__(self, seed: int, fail: Callable[[str], None]) -> None:
        self.random = random.Random(seed)
        self.now_ns = 0
        self._fail = fail
        self._hub = greenlet.getcurrent()
        self._ready: list[Task] = []
        self._alarms: list[tuple[int, int, Task, int]] = []
        self._numbers = itertools.count()
        self._waiting: dict[int, list[Task]] = {}
        self._current: Task | None = None
        self._threads: dict[clock.Thread, Task] = {}
        self._graveyard: list[Task] = []

    # --- spool.clock.Simulation -----------------------------------------------------------------------------

    def time_ns(self) -> int:
        return BEGAN + self.now_ns + (0 if self._current is None else self._current.process.skew_ns)

    def monotonic_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        task = self.current()
        if seconds <= 0:
            self._make_ready(task)
        else:
            self._set_alarm(task, seconds)
        self._hub.switch()

    def start(self, thread: clock.Thread) -> None:
        task = self.spawn(self.current().process, thread.name, thread.run)
        self._threads[thread] = task

    def is_alive(self, thread: clock.Thread) -> bool:
        task = self._threads.get(thread)
        return task is not None and not task.ended

    def wait(self, on: object, done: Callable[[], bool], timeout: float | None) -> bool:
        if done():
            return True
        task, key = self.current(), id(on)
        # A wait takes time, however short: what is left of one may be less than a nanosecond.
        end = None if timeout is None else self.now_ns + max(1, math.ceil(timeout * NS))
        self._waiting.setdefault(key, []).append(task)
        try:
            while True:
                if end is not None:
                    if end <= self.now_ns:
                        return done()
                    self._set_alarm(task, (end - self.now_ns) / NS)
                self._hub.switch()
                if done():
                    return True
        finally:
            waiting = self._waiting[key]
            waiting.remove(task)
            if not waiting:
                del self._waiting[key]

    def wake(self, on: object) -> None:
        for task in self._waiting.get(id(on), ()):
            self._make_ready(task)

    def current(self) -> Task:
        assert self._current is not None, "only threads of the simulation wait"
        return self._current

    # --- processes ------------------------------------------------------------------------------------------

    def spawn(self, process: Process, name: str, run: Callable[[], object]) -> Task:
        """A new thread of the process."""
        task = Task(process, name)

        def to_the_end() -> None:
            try:
                run()
            except Exception:  # noqa: BLE001 - a thread that dies is a finding
                self._fail(f"{process.name}: the thread {name} died: {traceback.format_exc()}")
            task.ended = True
            for thread in [each for each, own in self._threads.items() if own is task]:
                del self._threads[thread]
                self.wake(thread)

        task.greenlet = greenlet.greenlet(to_the_end, self._hub)
        self._make_ready(task)
        return task

    def freeze(self, process: Process) -> None:
        """Run none of its threads until `thaw`."""
        process.frozen, process.frozen_ns = True, self.now_ns

    def thaw(self, process: Process) -> None:
        """Let them run again."""
        process.frozen = False
        process.troubles.append((process.frozen_ns, self.now_ns))
        self._ready += process.held
        process.held = []

    def kill(self, process: Process) -> None:
        """End the process here: if one of its own threads calls this, it does not return."""
        if process.dead:
            return
        process.dead = True
        for end in process.ends:
            end()
        if self._current is not None and self._current.process is process:
            self._hub.switch()

    # --- the loop -------------------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool]) -> None:
        """Run threads until `until` says so, or none can ever run again. Raises Stalled."""
        turns = 0
        while not until():
            if not self._ready:
                if not self._ring_next_alarm():
                    return
                turns = 0
                continue
            turns += 1
            if turns > MOST_TURNS_AT_ONCE:
                raise Stalled(f"{self._ready[0].process.name}: {self._ready[0].name}")
            self._run_one(self._take_one())

    def _run_one(self, task: Task) -> None:
        if task.process.dead:
            self._graveyard.append(task)  # collecting it would run its `finally` blocks
        elif task.process.frozen:
            task.process.held.append(task)
        else:
            assert task.greenlet is not None
            task.ready = False
            task.turn += 1
            self._current = task
            task.greenlet.switch()
            self._current = None

    def _take_one(self) -> Task:
        ready = self._ready
        place = int(self.random.random() * len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        return ready.pop()

    def _ring_next_alarm(self) -> bool:
        while self._alarms:
            at, _, task, turn = heapq.heappop(self._alarms)
            if task.turn == turn and not task.ready and not task.ended:
                self.now_ns = max(self.now_ns, at)
                self._make_ready(task)
                return True
        return False

    def _set_alarm(self, task: Task, seconds: float) -> None:
        at = self.now_ns + max(1, round(seconds * NS))
        heapq.heappush(self._alarms, (at, next(self._numbers), task, task.turn))

    def _make_ready(self, task: Task) -> None:
        if not task.ready and not task.ended:
            task.ready = True
            self._ready.append(task)
