"""One finished chunk as it is saved, and its commit: words, bill, progress and lease, all or nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spool.failpoints import failpoint
from spool.store.chunks import SavedChunk, save_chunk, saved_chunks
from spool.store.costs import Charge
from spool.store.leases import renew_lease
from spool.transcript import NbestText
from worker.assemble import Piece
from worker.audio import SAMPLE_RATE
from worker.decode.hypothesis import UtteranceResult
from worker.decode.words import SCORE_DIGITS

if TYPE_CHECKING:
    from worker.attempt import Attempt


def chunk_of(piece: Piece, result: UtteranceResult | None) -> SavedChunk:
    """The piece with what was heard in it, in seconds of the recording; without a result it is silence."""
    offset, last = piece.start / SAMPLE_RATE, piece.end / SAMPLE_RATE
    words = tuple(
        word.model_copy(
            update={
                # A model's last frame may reach a little beyond the audio.
                "start": min(round(word.start + offset, 3), last),
                "end": min(round(word.end + offset, 3), last),
                "channel": piece.channel,
            }
        )
        for word in (result.words if result else ())
    )
    return SavedChunk(
        index=piece.index,
        channel=piece.channel,
        core_start=piece.core_start,
        core_end=piece.core_end,
        start=piece.start,
        end=piece.end,
        words=words,
        engine_ns=0 if result is None else result.engine_ns,
        attempt=0,
        nbest=_nbest(result) if result else (),
        lattice=result.lattice.moved(offset, piece.channel) if result and result.lattice else None,
    )


def _nbest(result: UtteranceResult) -> tuple[NbestText, ...]:
    """The hypotheses, where more than one was asked for; scores to digits that do not tell the batch."""
    return tuple(
        NbestText(text=text, score=round(hypothesis.score, SCORE_DIGITS))
        for text, hypothesis in zip(result.texts, result.hypotheses, strict=False)
    )


@dataclass(slots=True)
class ChunkCommit:
    """Saves one chunk. Called again after a commit without an answer, it looks first whether that one went
    through: billing a chunk twice is as wrong as losing it."""

    attempt: "Attempt"
    chunk: SavedChunk
    bill: Charge
    tried: bool = False

    def __call__(self) -> None:
        """Commit. Raises LeaseLost and StorageError, with nothing written as far as the database says."""
        claim = self.attempt.claim
        done = self.attempt.done_samples + self.chunk.core_end - self.chunk.core_start
        with self.attempt.bench.db.begin() as tx:
            if self.tried and any(self._is_this(saved) for saved in saved_chunks(tx, claim.job.id)):
                return
            self.tried = True
            lease, seconds = self.attempt.lease, done / self.attempt.channels / SAMPLE_RATE
            cancel = renew_lease(
                tx, claim, self.attempt.bench.settings.lease_seconds, lease.ran_seconds, seconds
            )
            # Last: the worker's other jobs wait for its row until the commit.
            save_chunk(tx, claim, self.chunk, self.bill)
            failpoint("save.written")
        failpoint("save.committed")
        if cancel:  # heard here, a cancel need not wait for the next renewal
            self.attempt.lease.cancel()

    def _is_this(self, saved: SavedChunk) -> bool:
        mine = (self.chunk.channel, self.chunk.index, self.attempt.claim.attempt)
        return (saved.channel, saved.index, saved.attempt) == mine
