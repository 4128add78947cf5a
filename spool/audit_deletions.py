"""The rules of deletion, beside the laws of `spool.audit`: what should be gone is gone, and in time.

Pure: facts in, breaches out.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from spool.audit import Breach, JobFacts
from spool.retention import Content, Retention, content_of, rule_for

SWEEP_GRACE = timedelta(hours=1)
"""By so much the sweep may be late: a rule that is new has much to delete at once."""


class Stored(NamedTuple):
    """A job as its objects need it: the transcript that counts, and what of the job should be gone by now."""

    transcript_key: str | None
    gone: frozenset[Content]


def deleted(job: JobFacts, chunks: int) -> Iterator[Breach]:
    """What SQL has to say of a job of which something was deleted; `chunks` are its saved ones."""
    for content in sorted(job.deleted - job.logged):
        yield Breach("deleted", job.id, f"Its {content} was deleted and no log says so.")
    if Content.TRANSCRIPT in job.deleted and (chunks or job.traces):
        yield Breach("deleted", job.id, "Its transcript was deleted, and traces of it are in the database.")
    if job.deleted and not job.state.terminal:
        yield Breach("deleted", job.id, f"Content of it was deleted, and it is {job.state}.")


def retained(job: JobFacts, rules: Mapping[str, Retention]) -> Iterator[Breach]:
    """Whether something of the job should have been deleted by now."""
    if job.finished_at is None:
        return
    for content in Content:
        kept_for = rule_for(rules, job.project).of(content)
        if kept_for is None or content in job.deleted:
            continue
        if content is Content.SOURCE and job.source_kind != "upload":
            continue
        late = job.now - job.finished_at - kept_for
        if late > SWEEP_GRACE:
            hours = late.total_seconds() / 3600
            yield Breach("retained", job.id, f"Its {content} should be gone for {hours:.0f} h.")


def gone(key: str, stored: Stored) -> Iterator[Breach]:
    """An object of a job of which something was deleted."""
    content = content_of(key)
    if content in stored.gone:
        yield Breach("deleted", key, f"Its job's {content} was deleted, and it is still in the object store.")
