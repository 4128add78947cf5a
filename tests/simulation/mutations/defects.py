"""Defects of the kind that this code could have had, each one change of a module's text.

Each breaks a law of `docs/design.md` in a state that only faults and interleavings reach.
"""

from typing import NamedTuple

from tests.simulation.database import DATABASES


class Defect(NamedTuple):
    """In the text of `module`, `before` becomes `after`. `database`: where it does harm."""

    module: str
    before: str
    after: str
    database: str = DATABASES[0]


_LEASES = "spool.store.queue.leases"
_ENDINGS = "spool.store.queue.endings"
_CRASHES = "spool.store.queue.crashes"
_OUTBOX = "spool.store.queue.outbox"
_QUOTAS = "spool.store.queue.quotas"
_CHUNKS = "spool.store.chunks"
_ATTEMPT = "worker.jobs.attempt"

DEFECTS: dict[str, Defect] = {
    # Whose the job is.
    "fence-without-attempt": Defect(_LEASES, "        jobs.c.attempt == claim.attempt,\n", ""),
    "renewal-without-fence": Defect(
        _LEASES,
        "row = tx.execute(_update_fenced(claim)",
        "row = tx.execute(update(jobs).where(jobs.c.id == claim.job.id)",
    ),
    "attempt-not-counted": Defect(
        _LEASES, "attempt=jobs.c.attempt + 1", "attempt=case((jobs.c.attempt == 0, 1), else_=jobs.c.attempt)"
    ),
    "pause-not-waited-out": Defect(
        "spool.store.queue.scheduler",
        "    yield or_(jobs.c.not_before.is_(None), jobs.c.not_before <= now_utc())\n",
        "",
    ),
    "lease-taken-early": Defect(
        _CRASHES,
        "_LAPSED = jobs.c.lease_until < now_utc()",
        "_LAPSED = jobs.c.lease_until < seconds_from_now(15)",
    ),
    "lease-not-renewed": Defect(
        "worker.jobs.lease", "        _STARTS.add(self._begun + self._pause, self)\n", ""
    ),
    "renewal-dies-of-an-outage": Defect(
        "worker.jobs.lease",
        "                if clock.monotonic() - renewed > self._outage_seconds():\n",
        "                if clock.monotonic() - renewed > 0:\n",
    ),
    "drain-claims-on": Defect(
        "worker.service.context",
        '        if self.draining.is_set():\n            return "the worker drains"\n',
        "",
    ),
    # Whose turn it is.
    "shares-ignored": Defect(
        "spool.store.queue.fair_share",
        "row, share = known.get(project), shares.get(project, 1.0)",
        "row, share = known.get(project), 1.0",
    ),
    "claims-not-charged": Defect(
        "spool.store.queue.scheduler",
        "    take_turn(tx, request.pool, turn, price * len(claims), len(claims))\n",
        "",
    ),
    "alone-beyond-the-quota": Defect(
        "spool.store.queue.scheduler",
        "    if project is None or not still_free(tx, rules.quotas, project):\n",
        "    if project is None:\n",
    ),
    # What may be used.
    "running-audio-not-counted": Defect(
        "spool.domain.quotas",
        "use.day_samples / SAMPLE_RATE + use.running_seconds",
        "use.day_samples / SAMPLE_RATE",
    ),
    "day-never-ends": Defect(_QUOTAS, "_sums().where(cost_lines.c.day == today)", "_sums()"),
    "spending-of-today-forgotten": Defect(_QUOTAS, "past + nanos, past", "past, past"),
    # Crashes.
    "outage-is-a-crash": Defect(_CRASHES, "    if row.owner_ended:\n", "    if True:\n"),
    "suspect-is-a-crash": Defect(_CRASHES, "        elif ended:\n", "        else:\n"),
    "silence-is-an-end": Defect(
        "spool.store.workers", "        successor.c.started_at > process.c.seen_at,\n", ""
    ),
    "poison-at-the-first-crash": Defect(_CRASHES, "jobs.c.crashes >= max_crashes\n", "jobs.c.crashes >= 1\n"),
    "crash-forgets-the-cancel": Defect(_CRASHES, "    if row.cancel_requested:\n", "    if False:\n"),
    "takeover-keeps-the-owner": Defect(
        _CRASHES, "            lease_owner=null(),\n            lease_until=null(),\n", ""
    ),
    # Faults of the surroundings.
    "missing-share-fails-the-job": Defect(
        "worker.jobs.endings",
        "        error = self._find_missing_share(error) or error\n",
        "        error = error if not isinstance(error, SourceUnreachable) else SpoolError(error.message)\n",
    ),
    "outage-fails-the-job": Defect("worker.jobs.retry", "RETRIES = 20\n", "RETRIES = 1\n"),
    "full-store-fails-the-job": Defect(
        "worker.jobs.endings",
        "        if not error.retryable:\n",
        "        if not error.retryable or error.code == 'disk_full':\n",
    ),
    "sick-engine-fails-the-job": Defect(
        "worker.jobs.endings",
        "        if isinstance(error, EngineStopped) and self._context.engine.stopped is not None:\n"
        '            return AttemptEnding("handed back", reason=error.message)',
        "        if isinstance(error, EngineStopped):\n"
        '            return AttemptEnding("failed", code=error.code, message=named)',
    ),
    # Chunks and money.
    "chunks-not-remembered": Defect(_ATTEMPT, "        if self.claim.attempt == 1:\n", "        if True:\n"),
    "chunk-without-its-charge": Defect(_CHUNKS, "        if bills:\n", "        if bills and wasted:\n"),
    "last-chunk-forgotten": Defect(
        _ENDINGS, "for one in free if one.chunk is not None])", "for one in free if False])"
    ),
    "waste-not-billed": Defect(
        _ATTEMPT,
        "                self._waste(replace(bill, audio_samples=0), unless_saved=place)\n",
        "",
    ),
    "waste-billed-though-saved": Defect(
        "worker.service.wasted_time",
        "        if self.unless_saved is not None and self._is_saved(tx, *self.unless_saved):\n",
        "        if False:\n",
    ),
    "saved-twice-after-a-cut": Defect(
        _ATTEMPT, "                if tried and self._are_saved(tx, chunks):\n", "                if False:\n"
    ),
    # Transcripts.
    "attempts-share-a-key": Defect(
        "worker.jobs.output",
        'return f"jobs/{job_id}/attempt-{attempt}/transcript.{form}"',
        'return f"jobs/{job_id}/attempt-1/transcript.{form}"',
    ),
    "own-transcript-withdrawn": Defect(
        "worker.jobs.runner", "            if not self._is_ours(delivered.key):\n", "            if True:\n"
    ),
    "record-not-stored": Defect(
        "worker.jobs.output",
        '    objects.put_bytes(key, record, CONTENT_TYPES["json"])\n',
        "",
    ),
    # Messages.
    "lost-message-not-sent-again": Defect(
        _OUTBOX, "    add_hints(tx, chosen)\n    return [job_id for job_id, _ in chosen]\n", "    return []\n"
    ),
    "taken-back-without-a-message": Defect(
        _OUTBOX, "    add_hints(tx, [(job.id, job.queue) for job in requeued])\n    _forget", "    _forget"
    ),
    "event-not-noted": Defect(
        _ENDINGS,
        "    note_jobs(tx, job)\n    settle_job(tx, job, claim.job.done_seconds)\n",
        "    settle_job(tx, job, claim.job.done_seconds)\n",
    ),
    "delivery-before-its-time": Defect(
        "spool.store.webhook_deliveries",
        'state = "delivered" if ok else "pending" if wait is not None else "failed"',
        'state = "delivered" if ok or wait is not None else "failed"',
    ),
    # What belongs to others.
    "exports-of-several-forgotten": Defect(
        _ENDINGS, "    for job in done:\n        enqueue_exports(tx, job)\n", ""
    ),
    "names-taken-from-others": Defect(
        "spool.store.archive.exports", "                continue\n", "                pass\n"
    ),
    "share-not-looked-for": Defect(
        "spool.background.exporter", '            self._folders.check(job.output["prefix"])\n', ""
    ),
    "half-a-file-in-sight": Defect(
        "spool.objects.local", 'mkstemp(dir=temporary, prefix=".spool-")', "mkstemp(dir=temporary)"
    ),
    "new-version-not-seen": Defect(
        "api.submission.listing", "Candidate(item.key, item.etag, ", 'Candidate(item.key, "", '
    ),
    "growing-file-taken": Defect(
        "api.watching.watcher",
        "    if not turn.source.settle_seconds:\n        return True\n",
        "    return True\n",
    ),
    "joined-upload-has-vanished": Defect(
        "api.submission.direct",
        "    except NotFound:\n        pass  # If there is an object,",
        "    except NotFound:\n        raise  # If there is an object,",
    ),
    # People.
    "cancel-lost-on-the-way-back": Defect(
        _ENDINGS, "    cancelled = jobs.c.cancel_requested\n", "    cancelled = literal(False)\n"
    ),
    "retry-counted-twice": Defect(
        "spool.store.jobs", '"retries": jobs.c.retries + 1,', '"retries": jobs.c.retries + 2,'
    ),
    # Locks.
    "locks-in-two-orders": Defect(
        "worker.service.endings",
        "            self._waiting.append(own)\n",
        "            self._waiting.append(own)\n"
        "            self._writing.acquire()\n"
        "            self._writing.release()\n",
    ),
    "gate-left-open": Defect(
        "worker.jobs.claim", "            context.job_gate.leave()\n", "            pass\n"
    ),
    # Rows that nothing but PostgreSQL has to lock.
    "quota-row-not-locked": Defect(_QUOTAS, "own.with_for_update(skip_locked=not wait)", "own", "postgresql"),
    "ending-not-locked": Defect(
        _ENDINGS,
        '        .with_for_update(of=jobs, skip_locked=True)\n        .cte("held")\n',
        '        .cte("held")\n',
        "postgresql",
    ),
    "taken-back-without-a-lock": Defect(
        _CRASHES, "        .with_for_update(of=jobs, skip_locked=most is not None)\n", "", "postgresql"
    ),
}
