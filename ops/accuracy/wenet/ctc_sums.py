"""What a CTC beam gains by adding up all alignments of a hypothesis, against scoring it by the best one.

    python -m ops.accuracy.wenet.ctc_sums models/demo --speech FOLDER [--most 60]

The model's CTC head over the recorded sets of `ops.accuracy`: greedy, then beams of both kinds, without and
with a language model of the training text. Prints WER over all sets and the paired difference of each sum to
the maximum beside it, with its 95 % interval.
"""

import argparse
import itertools
import tempfile
from dataclasses import replace
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 - behind OpenBLAS

from ops.accuracy.measure import Way, difference, errors_of, heard_by, rate  # noqa: E402
from ops.accuracy.ways import CTC, CTC_BEAM, language_model, sampled, training_text, with_model  # noqa: E402
from spool.wer import WordErrors  # noqa: E402
from worker.models.load import load_model  # noqa: E402
from worker.models.nemo.model import NemoModel  # noqa: E402


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--most", type=int, default=60, help="utterances of a set")
    asked = parser.parse_args(arguments)
    model = load_model(asked.model, mx.float32)
    assert isinstance(model, NemoModel)
    sets = sampled(asked.speech, None, asked.most)
    with tempfile.TemporaryDirectory() as work:
        lm = Path(work) / "lm.arpa"
        language_model(lm, training_text(asked.speech), model.tokenizer.encode, model.tokenizer.pieces)
        pairs = []
        for beam, alpha in ((4, 0.0), (16, 0.0), (4, 0.4), (16, 0.4)):
            options = replace(CTC_BEAM, beam=beam)
            ask = with_model(lm, alpha) if alpha else None
            name = f"beam {beam}" + (f", LM {alpha}" if alpha else "")
            best = Way(f"{name}, best alignment", replace(options, alignments="best"), ask)
            pairs.append((best, Way(f"{name}, all alignments", replace(options, alignments="all"), ask)))
        ways = [Way("greedy", CTC), *itertools.chain.from_iterable(pairs)]
        errors: dict[str, list[WordErrors]] = {way.name: [] for way in ways}
        for utterances in sets.values():
            for name, heard in heard_by(model, utterances, ways).items():
                errors[name] += errors_of(heard, utterances)
    print(f"{model.name}, {len(errors['greedy'])} utterances of {', '.join(sets)}")
    for name, each in errors.items():
        print(f"{name}: {100 * rate(each):.2f} % WER")
    for best, summed in pairs:
        gained = difference(errors[summed.name], errors[best.name])
        low, high = 100 * gained.low, 100 * gained.high
        print(f"{summed.name}: {100 * gained.rate:+.2f} points ({low:+.2f} to {high:+.2f})")


if __name__ == "__main__":
    main()
