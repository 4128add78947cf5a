"""How cost grows with the beam, the batch, the length of utterances and the vocabulary. Prints a table each.

    python -m ops.bench.engine.scaling [beam batch length vocabulary] [--threads 1] [--rounds 3]

Random weights of the size of parakeet-tdt_ctc-110m over noise; blank's bias is set so that the head emits as
speech does. Tokens a frame stand in brackets. Milliseconds of the processor, all threads, for
one second of audio, the best of the rounds, so that a straight row means "grows as the audio does". Memory is
the process's peak above what it held before.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # MLX is imported once the number of threads is set
    from spool.domain.search.fields import HeadName as Head

Made = TypeVar("Made")

BEAMS = [1, 2, 4, 8, 16, 32]
BATCHES = [1, 2, 4, 8, 16, 32, 64]
LENGTHS = [5, 10, 20, 40, 80, 160, 300]
LONG = [300, 600, 1200]
VOCABULARIES = [128, 256, 512, 1024, 2048, 4096, 8192]
LOCAL = (128, 128)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("tables", nargs="*", default=["beam", "batch", "length", "vocabulary"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--tiny", action="store_true", help="a model and lengths of no use, to try the script"
    )
    return parser.parse_args(arguments)


def best(rounds: int, call: Callable[[], Made]) -> tuple[float, Made]:
    """Least processor seconds, and what came of it; `rounds` >= 1."""
    begun = time.process_time()
    result = call()
    taken = [time.process_time() - begun]
    for _ in range(rounds - 1):
        begun = time.process_time()
        result = call()
        taken.append(time.process_time() - begun)
    return min(taken), result


class Tables:
    """Every table is a method; the model is made once a size."""

    def __init__(self, rounds: int, tiny: bool) -> None:
        from ops.bench.engine.random_model import SMALL, TINY

        self.rounds, self.tiny = rounds, tiny
        self.size = TINY if tiny else SMALL
        self.seconds = 1.0 if tiny else 20.0

    def beam(self) -> None:
        """Search alone, 8 utterances, over the beam."""
        print("\nbeam: search, 8 utterances; cpu ms a second of audio (tokens a frame)")
        kinds: tuple[Head, ...] = ("tdt", "rnnt")
        for kind in kinds:
            frames, head = self._frames(8, self.seconds), self._head(kind)
            cells = [self._search(frames, head, beam, kind) for beam in (None, *BEAMS)]
            _row(kind, dict(zip(["greedy", *map(str, BEAMS)], cells, strict=True)))

    def batch(self) -> None:
        """Encoder and searches over the number of utterances."""
        print(f"\nbatch: utterances of {self.seconds / 2:.0f} s; cpu ms a second of audio")
        batches, seconds = BATCHES[:2] if self.tiny else BATCHES, self.seconds / 2
        encoder, head = self._encoder(False), self._head("tdt")
        _row("encoder", {str(n): self._encode(encoder, n, seconds) for n in batches})
        for name, beam in (("greedy", None), ("beam 8", 8)):
            _row(name, {str(n): self._search(self._frames(n, seconds), head, beam) for n in batches})

    def length(self) -> None:
        """Encoder and searches over the length of one utterance, and memory."""
        print("\nlength: one utterance; cpu ms a second of audio, MB of peak memory")
        for name, local, every in (("full attention", False, LENGTHS), ("local attention", True, LONG)):
            lengths = [1, 2] if self.tiny else every
            encoder, cells = self._encoder(local), {}
            for seconds in lengths:
                cells[f"{seconds} s"] = f"{self._encode(encoder, 1, seconds)} {self._peak():.0f} MB"
            _row(name, cells)
        lengths, head = [1, 2] if self.tiny else LENGTHS + LONG[1:], self._head("tdt")
        for name, beam in (("greedy", None), ("beam 8", 8)):
            _row(name, {f"{s} s": self._search(self._frames(1, s), head, beam) for s in lengths})

    def vocabulary(self) -> None:
        """Searches over the vocabulary."""
        print("\nvocabulary: search, 8 utterances; cpu ms a second of audio (tokens a frame)")
        frames, sizes = self._frames(8, self.seconds), VOCABULARIES[:2] if self.tiny else VOCABULARIES
        for name, beam in (("greedy", None), ("beam 4", 4), ("beam 8", 8)):
            cells = {}
            for labels in sizes:
                cells[str(labels)] = self._search(frames, self._head("tdt", labels), beam)
            _row(name, cells)

    def _frames(self, batch: int, seconds: float) -> object:
        from ops.bench.engine.random_model import random_frames

        return random_frames(batch, seconds, self.size.encoder.d_model)

    def _head(self, kind: str, labels: int | None = None) -> object:
        from ops.bench.engine.random_model import random_head

        return random_head(replace(self.size, vocabulary=labels or self.size.vocabulary), kind)

    def _encoder(self, local: bool) -> object:
        from ops.bench.engine.random_model import random_encoder

        config = self.size.encoder
        if local:
            config = replace(config, self_attention_model="rel_pos_local_attn", att_context_size=LOCAL)
        return random_encoder(config)

    def _encode(self, encoder: object, batch: int, seconds: float) -> str:
        import mlx.core as mx

        from ops.bench.engine.random_model import random_features

        features, lengths = random_features(batch, seconds, self.size.encoder.feat_in)
        mx.reset_peak_memory()
        self._held = mx.get_active_memory()
        # What takes so long needs no second time: everything is compiled, and a moment's noise is small.
        rounds = self.rounds if batch * seconds < 160 else 1
        taken, _ = best(rounds, lambda: mx.eval(encoder(features, lengths)[0]))  # type: ignore[operator]
        return f"{1e3 * taken / batch / seconds:.1f}"

    def _peak(self) -> float:
        import mlx.core as mx

        return (mx.get_peak_memory() - self._held) / 1e6

    def _search(self, frames: object, head: object, beam: int | None, kind: "Head" = "tdt") -> str:
        from ops.bench.engine.random_model import FRAME_SECONDS, tokens_a_frame
        from worker.decode.search import search
        from worker.models.requests import SearchOptions

        options = (
            SearchOptions(head=kind) if beam is None else SearchOptions(decoder="beam", beam=beam, head=kind)
        )
        taken, result = best(self.rounds, lambda: search(head, frames, options))  # type: ignore[arg-type]
        milliseconds = 1e3 * taken / float(frames.lengths.sum()) / FRAME_SECONDS  # type: ignore[attr-defined]
        return f"{milliseconds:.2f} ({tokens_a_frame(result, frames):.2f})"  # type: ignore[arg-type]


def _row(name: str, cells: dict[str, str]) -> None:
    print(f"{name}:", "; ".join(f"{key}: {value}" for key, value in cells.items()), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse(arguments)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPOOL_KERNEL_THREADS"):
        os.environ[name] = str(chosen.threads)
    # Threads are counted and the BLAS is found before MLX is loaded.
    from worker.machine.blas import preload_blas

    print(preload_blas())
    tables = Tables(chosen.rounds, chosen.tiny)
    for name in chosen.tables:
        getattr(tables, name)()
        print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
