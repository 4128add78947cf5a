"""Whether `spool plan` says beforehand what is then measured: predicted over measured, batch by batch.

    python -m ops.bench.engine.plan_check [demo random] [--rounds 3] [--threads 1] [--clock processor|wall]

Calibrates on twelve batches as `spool-worker bench --calibrate` does, and predicts others: other lengths,
batch sizes and beams. All of them are measured in turn, round by round, each at its best. `demo` is the demo
model over speech, `random` random weights of the size of parakeet-tdt_ctc-110m over noise that swells and
falls. A plan counts on the tokens of speech, and a beam of random weights may emit another number of them:
runs whose tokens are not within a factor of 1.5 of greedy's median are printed and left out. Fails where a
prediction is off by more than 15 %.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # MLX is imported once the number of threads is set
    import numpy as np
    from numpy.typing import NDArray

    from spool.planning.roofline import Batch
    from spool.planning.shapes import Shape
    from worker.engine.protocol import Recognizer

TOLERANCE = 0.15
FACTOR = 1.5


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", default=["demo-tdt", "random"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=["processor", "wall"], default="processor")
    parser.add_argument("--tiny", action="store_true", help="a model and lengths of no use, to try it")
    return parser.parse_args(arguments)


class Check:
    """One model, calibrated and then held against others."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._rounds, self._clock, self._tiny = chosen.rounds, chosen.clock, chosen.tiny

    def run(self, name: str) -> float:
        """Print the table of one model; the largest error."""
        from spool.planning.throughput import fit
        from worker.diagnostics.calibration import BATCHES, measure

        recognizer, shape, speech = self._model(name)
        others = self._others()
        calibration = [replace(each, seconds=1) for each in BATCHES] if self._tiny else list(BATCHES)
        # One after the other in each round, so that a busier minute is everybody's.
        measured = measure(recognizer, speech, [*calibration, *others], self._rounds)
        runs = [
            replace(run, seconds=run.processor_seconds) if self._clock == "processor" else run
            for run in measured
        ]
        usual = statistics.median(run.tokens for run in runs if run.batch.decoder == "greedy")
        speaks = [usual / FACTOR <= run.tokens <= usual * FACTOR for run in runs]
        pace = fit(shape, [run for run, told in zip(runs[: len(calibration)], speaks, strict=False) if told])
        print(f"\n{name}, {self._clock} seconds, best of {self._rounds}; costs {_costs(pace)}")
        print("| | batch | tokens a second | measured | predicted | error |\n|---|---|---|---|---|---|")
        errors = []
        for number, run in enumerate(runs):
            predicted = pace.time_batch(shape, run.batch).seconds
            error = predicted / run.seconds - 1
            held, told = number >= len(calibration), speaks[number]
            kind = ("predicted" if held else "calibrated") if told else "left out"
            batch = run.batch
            search = f"beam {batch.beam}" if batch.decoder == "beam" else "greedy"
            print(
                f"| {kind} | {batch.utterances} x {batch.seconds} s, {search} | {run.tokens:.1f} "
                f"| {run.seconds:.3f} | {predicted:.3f} | {error:+.1%} |"
            )
            if held and told:
                errors.append(abs(error))
        worst = max(errors, default=0.0)
        mean = sum(errors) / max(1, len(errors))
        print(f"largest error of {len(errors)} predictions {worst:.1%}, mean {mean:.1%}")
        return worst

    def _others(self) -> "list[Batch]":
        from spool.planning.roofline import Batch

        if self._tiny:
            return [Batch(2, 1), Batch(1, 3, "beam", 4)]
        return [
            Batch(8, 6),
            Batch(12, 3),
            Batch(15, 8),
            Batch(25, 1),
            Batch(3, 12),
            Batch(25, 3, "beam", 4),
            Batch(10, 2, "beam", 8),
            Batch(7, 12, "beam", 6),
            Batch(28, 4, "beam", 16),
        ]

    def _model(self, name: str) -> "tuple[Recognizer, Shape, NDArray[np.float32]]":
        """A recognizer, its shape and what it hears."""
        from ops.bench.engine.random_model import SMALL, TINY, random_model
        from spool.planning.model_size import read_shape
        from spool.planning.shapes import ModelShape
        from worker.diagnostics.bench import speech_of, synthetic_speech
        from worker.engine.recognizer import ModelRecognizer, load_recognizer

        if name == "demo-tdt":
            return (
                load_recognizer("models/demo"),
                read_shape("models/demo"),
                speech_of("samples/demo-tdt/long/pauses.flac"),
            )
        size, noise = TINY if self._tiny else SMALL, synthetic_speech(60.0)
        encoder = size.encoder
        shape = ModelShape(
            name,
            encoder.feat_in,
            encoder.n_layers,
            encoder.d_model,
            kernel=encoder.conv_kernel_size,
            channels=encoder.subsampling_conv_channels,
            heads=encoder.n_heads,
            hidden=size.hidden,
            joint=size.hidden,
            labels=size.vocabulary,
        )
        return ModelRecognizer(random_model(size, noise[: 16_000 * 8], name)), shape, noise


def _costs(pace: object) -> str:
    from spool.planning.throughput import TERMS

    return ", ".join(f"{name} {cost:.3g}" for name, cost in zip(TERMS, pace.costs, strict=True))  # type: ignore[attr-defined]


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse(arguments)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPOOL_KERNEL_THREADS"):
        os.environ[name] = str(chosen.threads)
    # Threads are counted and the BLAS is found before MLX is loaded.
    from worker.machine.blas import preload_blas

    print(preload_blas(), f"load {os.getloadavg()[0]:.1f}")
    check = Check(chosen)
    worst = max(check.run(name) for name in chosen.models)
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    sys.exit(1 if worst > TOLERANCE and not chosen.tiny else 0)


if __name__ == "__main__":
    main()
