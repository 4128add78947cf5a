"""Reads every change of a job as it is committed, and says which law a change breaks.

What was committed is read from what `tests.simulation.triggers` have written.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from tests.simulation.database import Observer
from tests.simulation.quotas import Limits, Used
from tests.simulation.scheduler import BEGAN, NS, Process, Scheduler
from tests.simulation.shares import Shares
from tests.simulation.timeline import Timeline

ENDED = {"done", "failed", "cancelled"}
MOVES = {
    ("queued", "running"),
    ("queued", "cancelled"),
    ("queued", "failed"),
    ("running", "queued"),
    ("running", "done"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("failed", "queued"),
    ("cancelled", "queued"),
}
CALM_S, TOLERATED_S = 45.0, 8.0
"""A worker that something kept from its work for at most `TOLERATED_S` in the last `CALM_S` has renewed its
leases: they last 20 s, and are renewed every 2 s."""
GIVEN_UP_S = 290.0
"""A worker gives its leases up after it could not renew them for some 300 s."""
CANCEL_S = 5.0
"""Within this time a worker ends a job that a person cancels, if nothing keeps it from that."""
CRASHES = 3
DUE_NS = NS
"""A job waits for this long before it counts among those that a claim passed over."""


@dataclass(frozen=True)
class Expected:
    """What a job is called, and the error codes that its recording deserves."""

    name: str
    codes: frozenset[str] = frozenset()


class Row(NamedTuple):
    """A job's columns before or after a change."""

    state: str | None
    attempt: int
    lease_owner: str | None
    lease_until: str | None
    crashes: int
    error_code: str | None
    cancel_requested: bool
    retries: int
    suspects: str | None
    project: str
    forecast_seconds: float | None
    done_seconds: float
    reused_from: str | None
    not_before: str | None

    @property
    def suspected(self) -> set[str]:
        """The ids of workers that may have crashed over it."""
        return set(json.loads(self.suspects)) if self.suspects else set()


class History:
    """`owners` are the processes of workers, by id."""

    def __init__(
        self,
        observer: Observer,
        scheduler: Scheduler,
        timeline: Timeline,
        owners: dict[str, Process],
        limits: Limits,
    ) -> None:
        self._observer = observer
        self._scheduler, self._timeline, self._owners = scheduler, timeline, owners
        self._last = 0
        self._claimed_at: dict[tuple[str, int], int] = {}
        self._saved: dict[tuple[str, int], int] = {}
        self._cancelled_at: dict[str, int] = {}
        self._pauses: dict[str, str | None] = {}
        """Of each job that was queued again, until when it waits."""
        self._unknown: set[tuple[str, int]] = set()
        self._endings: dict[str, Counter[str]] = defaultdict(Counter)
        self._received: dict[str, Counter[str]] = defaultdict(Counter)
        self._shares = Shares()
        self._used = Used(observer, scheduler, limits)
        self._projects: dict[str, str] = {}
        """Of the jobs that have been claimed."""
        self.running: dict[str, str] = {}
        """The worker of each running job."""
        self.submitted: list[str] = []
        self.ended: dict[str, str] = {}
        self.expected: dict[str, Expected] = {}
        self.cancelling: set[str] = set()
        """The running jobs that are to be cancelled."""
        self.changed_by_people: set[str] = set()
        self.fleet_is_calm: Callable[[], bool] = lambda: True
        """Whether nothing outside a worker keeps it from its work now."""
        self.excuses: Callable[[str | None, str | None, str], bool] = lambda _uri, _etag, _code: False
        """Whether a job of this source may fail with this code, for what has happened to its recording."""

    def collect(self, committer: Process, told: bool) -> None:
        """Judge what this process has just committed; `told`: it learns of that."""
        rows = sorted(self._observer.rows("DELETE FROM simulated_history RETURNING *"))
        changed = False
        for _, at, job, chunk, *values in rows:
            self._last += 1
            old, new = Row(*values[::2]), Row(*values[1::2])
            changed = changed or chunk is not None or not self._is_renewed(old, new)
            if chunk is not None and new.state is not None:
                what = f"chunk {chunk} by attempt {new.attempt}, and attempt {old.attempt} is {new.state}"
                self._violate("who holds the job saves", job, what)
            elif chunk is not None:
                self._note_chunk(job, chunk, saved=new.attempt is not None)
                self._used.note_bill(self._projects.get(job, ""))
            elif old.state is None:
                self.submitted.append(job)
                self.expected.setdefault(job, Expected(f"other job {len(self.submitted)}"))
            else:
                self._judge(at, job, old, new, committer)
                if not told and new.state == "running":
                    self._unknown.add((job, new.attempt))
        if changed:
            self._look_who_waits()

    def _look_who_waits(self) -> None:
        """Which projects have jobs that any worker might claim."""
        now = datetime.fromtimestamp((BEGAN + self._scheduler.now_ns - DUE_NS) / NS, UTC)
        waiting = (
            "SELECT DISTINCT project FROM jobs WHERE state = 'queued' AND refusals IS NULL"
            " AND (not_before IS NULL OR not_before < ?) ORDER BY project"
        )
        found = self._observer.rows(waiting, f"{now:%Y-%m-%d %H:%M:%S}")
        self._shares.look([project for (project,) in found])

    def note_decoded(self, job: str, attempt: int, index: int) -> None:
        """An engine decoded a chunk."""
        saved, claimed = self._saved.get((job, index)), self._claimed_at.get((job, attempt))
        if saved is not None and claimed is not None and saved < claimed:
            self._violate("a chunk is decoded once", job, f"chunk {index} again, by attempt {attempt}")

    def project_of(self, job: str) -> str:
        """Of a job that has been claimed."""
        return self._projects.get(job, "")

    def receive(self, body: str) -> None:
        """The receiver of the webhook has got this."""
        message = json.loads(body)
        self._received[message["data"]["job"]][message["type"].removeprefix("job.")] += 1

    def check_webhooks(self) -> None:
        """Every ending that was committed was told to the receiver, or will be tried again."""
        waiting = "SELECT body FROM webhook_deliveries WHERE state = 'pending'"
        for (body,) in self._observer.rows(waiting):
            self.receive(body)
        for job, endings in self._endings.items():
            for state, times in endings.items():
                if (told := self._received[job][state]) < times:
                    self._violate("no webhook is lost", job, f"{state} {times} times, and told {told} times")

    def check_quotas(self) -> None:
        """Quotas are judged by what was billed."""
        self._used.check(self._timeline)

    # --- laws -----------------------------------------------------------------------------------------------

    def _note_chunk(self, job: str, index: int, *, saved: bool) -> None:
        if saved:
            self._saved[job, index] = self._last
        else:
            self._saved.pop((job, index), None)

    def _judge(self, at: str, job: str, old: Row, new: Row, committer: Process) -> None:
        if old.state == "running" and (new.state != "running" or new.attempt != old.attempt):
            reused = new.reused_from is not None and old.reused_from is None
            self._shares.end(old.project, job, None if reused else new.done_seconds)
        if old.state != new.state and (old.state, new.state) not in MOVES:
            self._violate("states move as drawn", job, f"{old.state} became {new.state}")
        if new.attempt != old.attempt or (new.state == "running" and old.state != "running"):
            self._judge_claim(at, job, old, new, committer)
        elif self._is_renewed(old, new) and self._owners.get(str(old.lease_owner)) is not committer:
            self._violate("who holds the job renews", job, f"its lease was renewed by {committer.name}")
        if old.lease_owner is not None and new.lease_owner != old.lease_owner:
            self._judge_loss(at, job, old, committer, known=(job, old.attempt) not in self._unknown)
        if new.crashes > old.crashes:
            self._judge_crash(job, old, new)
        self._judge_wishes(job, old, new)
        if old.state != new.state or old.attempt != new.attempt:
            self._note_move(job, old, new)
            self._pauses[job] = new.not_before

    def _judge_wishes(self, job: str, old: Row, new: Row) -> None:
        """What people asked for is done, and once."""
        if new.retries > old.retries + 1 or (new.retries > old.retries) != (old.state in ENDED):
            self._violate("a retry is counted once", job, f"{old.retries} became {new.retries}")
        if old.cancel_requested and old.state == "running" and new.state == "queued":
            self._violate("a cancel is not forgotten", job, "it was queued again")
        if new.cancel_requested and not old.cancel_requested:
            self._cancelled_at[job] = self._scheduler.now_ns
        elif old.cancel_requested and new.state != "running":
            self._judge_cancel(job, old)
        if new.cancel_requested and new.state == "running":
            self.cancelling.add(job)
        else:
            self.cancelling.discard(job)

    @staticmethod
    def _is_renewed(old: Row, new: Row) -> bool:
        """Whether whoever holds the job holds it for longer now."""
        return new.lease_until != old.lease_until and new.lease_owner == old.lease_owner

    def _judge_claim(self, at: str, job: str, old: Row, new: Row, committer: Process) -> None:
        if new.state != "running" or new.attempt != old.attempt + 1:
            self._violate("a claim is one attempt", job, f"attempt {old.attempt} became {new.attempt}")
        # A later pause is for others: a worker makes room for a job on its last chance, and claims it.
        if (
            old.not_before is not None
            and old.not_before[:23] > at
            and old.not_before == self._pauses.get(job)
        ):
            self._violate("a pause is waited out", job, f"claimed at {at}, and not before {old.not_before}")
        since = committer.draining_since_ns
        if since is not None and self._scheduler.now_ns - since > 3 * NS:
            self._violate("who drains claims nothing", job, f"claimed by {committer.name}")
        if self._shares.is_full(new.project):
            self._violate(
                "a quota holds", job, f"{new.project} has {self._shares.running[new.project]} in flight"
            )
        if unfair := self._shares.find_unfair(new.project):
            self._violate("fair share within its bound", job, unfair)
        if excess := self._used.find_excess(new.project, job):
            self._violate("a quota holds", job, f"claimed for {new.project} when {excess}")
        self._projects[job] = new.project
        if new.forecast_seconds is None:
            self._violate("a claim is charged", job, f"{new.project} was not charged")
        self._shares.claim(new.project, job, new.done_seconds, new.forecast_seconds or new.done_seconds)
        self._claimed_at[job, new.attempt] = self._last

    def _judge_loss(self, at: str, job: str, old: Row, committer: Process, *, known: bool) -> None:
        """A claim ended. Unless its own worker did that, its lease had run out, and not without a reason.
        known: the worker has learnt of its claim."""
        owner = self._owners.get(str(old.lease_owner))
        if owner is None or owner is committer or (owner.dead and not owner.killed):
            return  # one that ended by itself says so through its successor
        if str(old.lease_until)[:23] > at:
            what = f"taken from {owner.name} by {committer.name} before the lease ran out"
            self._violate("a claim is held by one", job, what)
        now = self._scheduler.now_ns
        since, given_up = now - round(CALM_S * NS), now - round((CALM_S + GIVEN_UP_S) * NS)
        if owner.longest_trouble_s(given_up) > GIVEN_UP_S:
            return
        if known and self._could_work(owner, since, TOLERATED_S):
            self._violate("who works keeps the job", job, f"taken from {owner.name}, which was well")

    def _judge_cancel(self, job: str, old: Row) -> None:
        """A job that was to be cancelled has ended, or its lease was lost. A worker that was not told of its
        claim does not know that it has the job."""
        asked, owner = self._cancelled_at.get(job), self._owners.get(str(old.lease_owner))
        if asked is None or owner is None or (job, old.attempt) in self._unknown:
            return
        if not self._could_work(owner, asked, 0):
            return
        took = (self._scheduler.now_ns - asked) / NS
        if took > CANCEL_S:
            self._violate("a cancel is obeyed", job, f"{owner.name} needed {took:.1f} s")

    def _could_work(self, owner: Process, since_ns: int, tolerated_s: float) -> bool:
        """Whether since then nothing has kept the worker from its work for longer."""
        if owner.dead or owner.frozen or not self.fleet_is_calm():
            return False
        return owner.troubled_s(since_ns) <= tolerated_s

    def _judge_crash(self, job: str, old: Row, new: Row) -> None:
        taken = old.lease_owner is not None and new.lease_owner is None
        accused = {old.lease_owner} if taken else old.suspected - new.suspected
        owners = [self._owners[each] for each in sorted(map(str, accused)) if each in self._owners]
        if sum(owner.killed for owner in owners) < min(len(owners), new.crashes - old.crashes):
            names = ", ".join(owner.name for owner in owners)
            self._violate("crashes are deaths", job, f"a crash of {names} was counted, and nothing killed it")

    def _note_move(self, job: str, old: Row, new: Row) -> None:
        name = self._name(job)
        if new.state == "running":
            owner = str(new.lease_owner)
            self.running[job] = owner
            process = self._owners.get(owner)
            claimer = owner if process is None else process.name
            self._timeline.note(f"{name} claimed by {claimer}, attempt {new.attempt}")
            return
        self.running.pop(job, None)
        why = f" ({new.error_code})" if new.error_code else ""
        self._timeline.note(f"{name} is {new.state}{why}, was {old.state}")
        if new.state in ENDED:
            self.ended[job] = str(new.state)
            self._endings[job][str(new.state)] += 1
            self._judge_ending(job, new)
        else:
            self.ended.pop(job, None)
            if old.state in ENDED and job not in self.changed_by_people:
                self._violate("a job ends once", job, f"{old.state} was queued again, and nobody asked")

    def _judge_ending(self, job: str, new: Row) -> None:
        deserved = self.expected[job].codes if job in self.expected else frozenset[str]()
        if new.state == "failed":
            crashed = new.error_code == "poison" and new.crashes >= CRASHES  # each was judged
            if new.error_code not in deserved and not crashed and not self._is_excused(job, new):
                self._violate("no fault of the surroundings fails a job", job, f"failed as {new.error_code}")
        elif new.state == "done" and deserved:
            self._violate("bad input is refused", job, f"done, and it deserves {sorted(deserved)}")
        elif new.state == "cancelled" and job not in self.changed_by_people:
            self._violate("only people cancel", job, "cancelled, and nobody asked")

    def _is_excused(self, job: str, new: Row) -> bool:
        sources = self._observer.rows("SELECT source_uri, source_etag FROM jobs WHERE id = ?", job)
        return any(self.excuses(uri, etag, str(new.error_code)) for uri, etag in sources)

    def _violate(self, law: str, job: str, what: str) -> None:
        self._timeline.violate(law, f"{self._name(job)}: {what}")

    def _name(self, job: str) -> str:
        return self.expected[job].name if job in self.expected else job
