"""The endings of an attempt that made no transcript: which one an error leads to, and its commit.

- a share or folder that this worker cannot reach: back into the queue, and never failed.
- an error that will stay: failed at once, with its code and sentence (law 8).
- an error that may pass: back into the queue after a growing pause; after so many of them in a row in which
  no chunk was kept (`RetryPolicy`), failed with that error. A full disk is one of these: it concerns this
  worker and this hour, not the recording.
- drain: back to its place in the queue at a saved chunk; its turn is over: to the end of it.
- a person's cancel: cancelled.
- a lost lease: nothing; another worker has the job, and what was not saved is billed as wasted.

Every ending is one of the moves of `spool.domain.jobs`, fenced by the claim. Never raises.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import structlog

from spool.domain.worker_stats import REFUSED
from spool.errors import (
    AudioError,
    EngineStopped,
    JobCancelled,
    LeaseLost,
    ShareMissing,
    SourceError,
    SourceMissing,
    SourceUnreachable,
    SpoolError,
    StorageError,
)
from spool.failpoints import failpoint
from spool.store.queue.endings import fail_job, hand_back
from spool.tracing import current
from worker.jobs.attempt import Attempt, GiveBack, TurnOver
from worker.jobs.lease import write_cancel
from worker.jobs.retry import retry_storage
from worker.jobs.services import JobServices
from worker.jobs.verdict import Verdict, is_suspect, judge, judge_place

log = structlog.get_logger(__name__)

FOREIGN_FOLDER = "its SPOOL_SOURCE_ROOTS do not have the folder of a recording that no other worker can read"


@dataclass(frozen=True, slots=True)
class AttemptEnding:
    """How an attempt ends. `code` and `message` are the error's, for its submitter; `reason` is for the log.
    `refusal`: why other workers are to try the job. `blame`: the verdict that this is the worker's fault."""

    name: Literal["handed back", "failed", "cancelled", "lost"]
    code: str = ""
    message: str = ""
    reason: str = ""
    pause: float = 0.0
    to_the_end: bool = False
    refusal: str = ""
    blame: Verdict | None = None
    transient_failures: int | None = None


class FailedAttempt:
    """An attempt that an error has ended. `code` is that of the error, empty without one."""

    def __init__(self, services: JobServices, attempt: Attempt) -> None:
        self._services, self._context = services, services.context
        self._attempt, self._claim, self._lease = attempt, attempt.claim, attempt.lease
        self._job = attempt.claim.job
        self.code = ""

    def end(self, error: Exception) -> str:
        """Leave the engine and write the ending; returns its name."""
        ending = self._choose(error)
        name = self._write(ending)
        if ending.blame is None:
            return name
        if ending.blame.blames_worker:
            message = ending.refusal.removeprefix(f"{self.code}: ")
            model, proven = self._job.options.model, ending.blame.proven
            self._context.health.job_failed(self._job.id, model, message, proven=proven)
        return REFUSED if name == "handed back" else name

    # --- which ending ---------------------------------------------------------------------------------------

    def _choose(self, error: Exception) -> AttemptEnding:
        if not isinstance(error, SpoolError | GiveBack):
            log.error("unexpected error", exc_info=error)
            kind = type(error).__name__
            error = SpoolError(f"{self._job.name}: unexpected {kind}; the worker's log has more.")
        error = self._find_missing_share(error) or error
        choose = next(choose for kind, choose in _CHOICES if isinstance(error, kind))
        return choose(self, error)

    def _find_missing_share(self, error: Exception) -> SpoolError | None:
        """The error of a share that is gone, if that is why the recording could not be read to its end."""
        job = self._job
        if job.source.kind != "file" or not isinstance(error, SourceError | AudioError | StorageError):
            return None
        return self._services.sources.find_missing_share(job.source, job.name)

    def _choose_unreachable(self, error: SourceUnreachable) -> AttemptEnding:
        """This worker cannot reach the job's folder."""
        try:
            verdict = judge_place(self._context, self._attempt, error)
        except StorageError as interruption:
            return self._choose_by_kind(interruption)
        if verdict.retry:
            return self._retry(error, endless=True)
        if not verdict.lacks_share:
            return self._refuse(error, verdict)
        self._note(error)
        self._lack(error)
        return AttemptEnding("handed back", code=error.code, message=error.message, reason=verdict.reason)

    def _choose_by_blame(self, error: SpoolError) -> AttemptEnding:
        """By whose fault the error is."""
        if not is_suspect(error):
            return self._choose_by_kind(error)
        self._attempt.abandon()  # the self-test wants the engine for itself
        try:
            verdict = judge(self._context, self._attempt, error)
        except (SpoolError, GiveBack) as interruption:  # the lease was lost, a person cancelled, a drain
            return self._choose(interruption)
        if verdict is not None and verdict.retry:
            return self._retry(error, endless=False)
        return self._choose_by_kind(error) if verdict is None else self._refuse(error, verdict)

    def _choose_by_kind(self, error: SpoolError) -> AttemptEnding:
        """The error is not the worker's own fault: it stays, or it may pass."""
        self._note(error)
        named = self._name(error)
        if self._may_appear(error):
            pause = self._services.retry.endless_pause(1)
            return AttemptEnding("handed back", code=error.code, message=named, pause=pause)
        if not error.retryable:
            return AttemptEnding("failed", code=error.code, message=named)
        self._context.health.note(error)
        if isinstance(error, EngineStopped) and self._context.engine.stopped is not None:
            return AttemptEnding("handed back", reason=error.message)  # the machine is ill, not the job
        return self._retry(error, endless=False)

    def _may_appear(self, error: SpoolError) -> bool:
        """Whether a file is looked for once more before its job fails: a share may have been about to be
        mounted, and a network's file system may have an old list of its files."""
        is_missing = isinstance(error, SourceMissing) and self._job.source.kind == "file"
        return is_missing and self._job.error_code != error.code

    def _retry(self, error: SpoolError, *, endless: bool) -> AttemptEnding:
        """Hand the job back to be tried again after a pause that grows; without `endless`, it fails in the
        end."""
        self._note(error)
        named = self._name(error)
        # Once all workers have refused the job, all may try again.
        is_refused = bool(self._job.refusals) and not error.retryable
        self._attempt.abandon()  # saves what is decoded, and that counts
        policy, failures = self._services.retry, self._attempt.transient_failures
        if endless:  # a storage error after these still has some tries
            failures = min(failures, policy.attempts // 2)
        pause = policy.endless_pause(failures) if endless else policy.pause(failures)
        if pause is None:
            tries = f"{named} Given up after {failures} attempts."
            return AttemptEnding("failed", code=error.code, message=tries)
        return AttemptEnding(
            "handed back",
            code=error.code,
            message=named,
            pause=pause,
            refusal=_refusal_of(error) if is_refused else "",
            transient_failures=failures,
        )

    def _refuse(self, error: SpoolError, verdict: Verdict) -> AttemptEnding:
        """Hand the job back at once, for other workers: what went wrong may be this one's fault."""
        self._note(error)
        reason = f"{verdict.reason}: {error.message}"
        return AttemptEnding("handed back", reason=reason, refusal=_refusal_of(error), blame=verdict)

    def _lack(self, error: SourceUnreachable) -> None:
        """Take the worker out of service until it can read the recording."""
        shares = self._services.sources.shares
        root = error.root if isinstance(error, ShareMissing) else None

        def find_problem() -> str | None:
            # The reason is shown to every project, so it does not name the recording.
            return FOREIGN_FOLDER if root is None else shares.root_problem(root)

        if (problem := find_problem()) is not None:
            self._context.health.lack(self._job.id, problem, find_problem)

    def _note(self, error: SpoolError) -> None:
        self.code = error.code
        current().record_error(error)

    def _name(self, error: SpoolError) -> str:
        """The error's message, which names the recording."""
        return error.message if self._job.name in error.message else f"{self._job.name}: {error.message}"

    # --- its commit -----------------------------------------------------------------------------------------

    def _write(self, ending: AttemptEnding) -> str:
        """Leave the engine, then write the ending, unless the job is no longer ours; returns its name."""
        self._attempt.abandon()
        name = "cancelled" if self._lease.wrote_cancel else ending.name
        said = {"code": ending.code, "error": ending.message, "reason": ending.reason}
        level = log.warning if name == "failed" else log.info
        level(name, **{key: value for key, value in said.items() if value})
        if name == "lost" or self._lease.wrote_cancel:
            return name
        try:
            retry_storage(lambda: self._commit(ending), self._context.outage_seconds)
        except LeaseLost:
            return "cancelled" if self._lease.wrote_cancel else "lost"
        except StorageError as error:
            # The lease runs out and the sweep takes over.
            log.warning("ending not written", error=error.message)
        if name == "handed back":
            self._services.requeued()
        return name

    def _commit(self, ending: AttemptEnding) -> None:
        if ending.name == "cancelled":
            write_cancel(self._context.db, self._claim)
            return
        with self._context.db.begin() as tx:
            if ending.name == "failed":
                fail_job(tx, self._claim, ending.code, ending.message)
            else:
                own_name = self._context.settings.worker_name
                hand_back(
                    tx,
                    self._claim,
                    ending.pause,
                    ran_seconds=self._lease.ran_seconds,
                    transient_failures=ending.transient_failures,
                    to_the_end=ending.to_the_end,
                    refused_by=(own_name, ending.refusal) if ending.refusal else None,
                    error=(ending.code, ending.message) if ending.code else None,
                )
            failpoint("ending.written")
        failpoint("ending.committed")


def _refusal_of(error: SpoolError) -> str:
    return f"{error.code}: {error.message}"


_CHOICES: tuple[tuple[type[Exception], Callable[[FailedAttempt, Any], AttemptEnding]], ...] = (
    (TurnOver, lambda _, error: AttemptEnding("handed back", reason=str(error), to_the_end=True)),
    (GiveBack, lambda _, error: AttemptEnding("handed back", reason=str(error))),
    (LeaseLost, lambda _, __: AttemptEnding("lost")),
    (JobCancelled, lambda _, __: AttemptEnding("cancelled")),
    (SourceUnreachable, FailedAttempt._choose_unreachable),
    (SpoolError, FailedAttempt._choose_by_blame),
)
"""The ending by the kind of error; the first that fits."""
