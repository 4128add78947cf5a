"""Where a job waits, which workers may take it, and why none does.

The name of a route is the queue of its jobs, in SQL and in Redis alike: `spool.model:whisper-tiny.en` for
jobs that name no pool, `spool.cpu` for those of a pool; `;reader:canary` names a second model that a worker
must have, `;at:mini-3` pins to a worker, `;backend:metal`, `;chip:m4` and `;memory:16` state requirements of
the machine, and `;live:1` is for live sessions, which have separate threads. Pure: the caller knows the
workers.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Literal
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

Backend = Literal["metal", "cuda", "cpu"]
PREFIX = "spool."
ANY_POOL = "any"
"""The pool of jobs that name none, in metrics and overviews."""
_GIB = 2**30
_TAKING = frozenset({"starting", "ready"})


class Requirement(BaseModel):
    """What a job requires of the machine it runs on; omitted fields do not matter."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    backend: Annotated[Backend | None, Field(description="Where MLX computes.")] = None
    chip: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=100,
            pattern=r"^[\w ().@+-]+$",
            description="Words that the chip's name must contain, such as `M4 Max`.",
        ),
    ] = None
    memory_gb: Annotated[int | None, Field(ge=1, le=4096, description="The least memory, in GiB.")] = None

    def __str__(self) -> str:
        parts = [self.backend, self.chip, self.memory_gb and f"at least {self.memory_gb} GiB of memory"]
        return ", ".join(part for part in parts if part)

    def over(self, other: "Requirement") -> "Requirement":
        """This requirement, with omitted fields taken from `other`."""
        return other.model_copy(update=self.model_dump(exclude_none=True))


ANY_MACHINE = Requirement()


@dataclass(frozen=True, slots=True)
class Route:
    """Which workers may take a job: those of a pool, or, if `pool` is None, all that have its `model`.
    reader: a second model that reorders the first one's hypotheses; a worker needs it too. live: a session
    whose client is connected; it waits in a separate queue, without messages."""

    pool: str | None
    worker: str | None = None
    model: str | None = None
    requires: Requirement = ANY_MACHINE
    reader: str | None = None
    live: bool = False

    @property
    def queue(self) -> str:
        """The name of the queue that has this route."""
        first = self.pool if self.pool is not None else f"model:{quote(self.model or '', safe='')}"
        wanted = self.requires
        pairs = {
            "reader": self.reader,
            "at": self.worker,
            "backend": wanted.backend,
            "chip": wanted.chip,
            "memory": wanted.memory_gb,
            "live": 1 if self.live else None,
        }
        rest = [f";{name}:{quote(str(value), safe='')}" for name, value in pairs.items() if value is not None]
        return PREFIX + first + "".join(rest)


@lru_cache(maxsize=4096)
def route_of(queue: str) -> Route:
    """The route of a queue's name. Raises ValueError for any other text."""
    first, *rest = queue.removeprefix(PREFIX).split(";")
    pairs = dict(part.split(":", 1) for part in rest)
    values = {name: unquote(value) for name, value in pairs.items()}
    memory = values.get("memory")
    requires = Requirement.model_validate(
        {
            "backend": values.get("backend"),
            "chip": values.get("chip"),
            "memory_gb": None if memory is None else int(memory),
        }
    )
    kind, colon, model = first.partition(":")
    if colon and kind != "model":
        raise ValueError(f"{queue!r} is not the name of a queue")
    return Route(
        None if colon else first,
        values.get("at"),
        unquote(model) if colon else None,
        ANY_MACHINE if requires == ANY_MACHINE else requires,
        values.get("reader"),
        "live" in values,
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """What a worker tells about its machine; None if it does not tell."""

    backend: str | None = None
    chip: str = ""
    memory_bytes: int | None = None

    def meets(self, requires: Requirement) -> bool:
        """Whether the machine meets the requirement."""
        if requires.backend is not None and requires.backend != self.backend:
            return False
        if requires.chip is not None and requires.chip.lower() not in self.chip.lower():
            return False
        return requires.memory_gb is None or round((self.memory_bytes or 0) / _GIB) >= requires.memory_gb


@dataclass(frozen=True, slots=True)
class Offer:
    """What one worker can take. `models` None: the worker does not tell, and is assumed to have any."""

    pool: str
    name: str
    models: frozenset[str] | None = None
    machine: Machine = Machine()

    def takes(self, route: Route, model: str | None = None) -> bool:
        """Whether the worker may take jobs of this route, of this `model` if the route names none."""
        if route.pool not in (None, self.pool) or route.worker not in (None, self.name):
            return False
        wanted = {route.model or model, route.reader} - {None}
        if self.models is not None and not wanted <= self.models:
            return False
        return self.machine.meets(route.requires)

    @property
    def queues(self) -> list[str]:
        """The queues without requirements whose jobs it may take."""
        routes = [Route(self.pool), Route(self.pool, self.name)]
        for model in sorted(self.models or ()):
            routes += [Route(None, model=model), Route(None, self.name, model)]
        return [route.queue for route in routes]


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker's last report."""

    offer: Offer
    state: str
    reason: str | None
    alive: bool
    seen_at: datetime


def why_waiting(route: Route, model: str, workers: Iterable[WorkerReport], now: datetime) -> str | None:
    """What a job is waiting for if no worker can take it now, as a phrase; None if a worker can."""
    known = list(workers)
    able = [worker for worker in known if worker.offer.takes(route, model)]
    alive = [worker for worker in able if worker.alive]
    if any(worker.state in _TAKING for worker in alive):
        return None
    wanted = f"{_describe(route, model)}; "
    if alive:
        first = alive[0]
        because = f" ({first.reason})" if first.reason else ""
        others = f", as are {len(alive) - 1} more" if len(alive) > 1 else ""
        return f"{wanted}{first.offer.name} is {first.state}{because}{others}"
    if able:
        age = (now - max(worker.seen_at for worker in able)).total_seconds()
        return f"{wanted}none was seen for {_age(age)}"
    present = {name for worker in known if worker.alive for name in worker.offer.models or ()}
    if not present:
        return f"{wanted}no worker is running"
    if model in present and route.reader in {None, *present}:
        return f"{wanted}none is running"
    return f"{wanted}those that are running have {_join(present)}"


def _describe(route: Route, model: str) -> str:
    words = ["a worker"]
    if route.worker is not None:
        words = [f"the worker {route.worker}"]
    if route.pool is not None:
        words.append(f"in pool {route.pool}")
    words.append(f"with model {model}")
    if route.reader is not None:
        words.append(f"and the rescoring model {route.reader}")
    if route.requires != ANY_MACHINE:
        words.append(f"on {route.requires}")
    return " ".join(words)


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _join(names: Collection[str]) -> str:
    shown = sorted(names)[:5]
    return ", ".join(shown) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
