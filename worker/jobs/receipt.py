"""What a finished job states of itself, from what its attempt knows. The API signs it."""

from collections.abc import Sequence

from spool import clock
from spool.domain.receipts import Origin, Statement, canonical, digest, receipts_of
from spool.domain.recognition import DecodedChunk
from spool.domain.transcript import ModelFacts, Transcript
from spool.store.queue.endings import Outcome
from spool.store.queue.leases import Claim
from worker.jobs.code import running_code
from worker.models.base import ModelInfo

_OTHERS = ("language_model", "diarization", "witness")
"""Fields of a transcript with the facts of a model."""


def state(
    claim: Claim,
    transcript: Transcript,
    outcome: Outcome,
    decoded: Sequence[DecodedChunk],
    info: ModelInfo | None,
    origin: Origin | None,
) -> str:
    """The statement in its canonical form. origin: where the words come from that were not decoded."""
    assert outcome.transcript_sha256 is not None
    facts = {name: getattr(transcript, name) for name in _OTHERS}
    others = {
        name: ModelFacts(name=own.name, sha256=own.sha256) for name, own in facts.items() if own is not None
    }
    statement = Statement(
        job=claim.job.id,
        attempt=claim.attempt,
        ended_at=f"{clock.now():%Y-%m-%dT%H:%M:%SZ}",
        audio_sha256=outcome.content_sha256,
        transcript_sha256=outcome.transcript_sha256,
        options_sha256=digest(transcript.options),
        fingerprint=outcome.fingerprint,
        model=transcript.model,
        others=others,
        numerics=None if info is None or not decoded else info.numerics,
        code=running_code(),
        words_from=origin,
        chunks=receipts_of(decoded),
    )
    return canonical(statement.model_dump(mode="json")).decode()
