"""What of a worker's work is seen in traces and log lines: whose attempt it is, its chunks, how it ended.

Knows spans and bound log fields; changes nothing of a job.
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import structlog

from spool.domain.recognition import ChunkSpan, Recognition
from spool.store.queue.leases import Claim
from spool.tracing import Span, Value, begin, within
from worker.audio import SAMPLE_RATE


@contextlib.contextmanager
def trace_attempt(claim: Claim, worker: str) -> Iterator[Span]:
    """The attempt's step in the job's trace, after the time that the job waited; in the block every line of
    this thread carries the job's ids.

    A job that came alone goes on with its submitter's trace; one of a batch has its own, which points there.
    """
    job = claim.job
    ids = job.ids
    attributes: dict[str, Value | None] = {
        **ids,
        "attempt": claim.attempt,
        "worker": worker,
        "pool": job.pool,
        "project": job.project,
    }
    parent, link = (None, job.traceparent) if job.batch_id else (job.traceparent, None)
    waited = begin("wait", ids, parent=parent, link=link, began=job.queued_at)
    waited.end()
    with (
        structlog.contextvars.bound_contextvars(**ids, attempt=claim.attempt),
        within(begin("attempt", attributes, parent=waited, kind="consumer")) as attempt_span,
    ):
        yield attempt_span


def follow(future: "Future[Recognition]", piece: ChunkSpan, ids: dict[str, str]) -> None:
    """A step for the chunk, from here until the engine answers."""
    seconds = piece.core / SAMPLE_RATE
    about: dict[str, Value | None] = {
        **ids,
        "chunk": piece.index,
        "channel": piece.channel,
        "audio_seconds": seconds,
    }
    one = begin("chunk", about)
    future.add_done_callback(partial(_note_answer, one))


def _note_answer(one: Span, future: "Future[Recognition]") -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        one.record_error(error)
    elif not future.cancelled():
        result = future.result()
        one.note(batch_utterances=result.batch_size, engine_seconds=result.engine_ns / 1e9)
    one.end()
