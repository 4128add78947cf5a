"""What a second model's reading of a beam's hypotheses costs, beside the beam alone, in batches of sixteen.

    python -m ops.bench.wenet.second --model MODEL --reader MODEL [--beam 8] [--seconds 6] [--rounds 3]

Recordings are those of `ops.bench.wenet.rescoring`. Times are the processor's; searches take turns, and the
ratio is the median of the rounds' own.
"""

import argparse
import statistics
import time

from ops.bench.wenet.rescoring import BATCH, recordings
from worker.decode.types import DecodeRequest, SearchOptions
from worker.engine.recognizer import ModelRecognizer
from worker.models.load import load_model


def main() -> None:
    """Times greedy, the beam and the beam that a second model rescores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--reader", required=True)
    parser.add_argument("--beam", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    first = ModelRecognizer(load_model(asked.model))
    second = first.read_by(ModelRecognizer(load_model(asked.reader)))
    samples, requests = recordings(asked.seconds), [DecodeRequest(reader_weight=0.5)] * BATCH
    beam = SearchOptions("beam", asked.beam)
    searches = {
        "greedy": (first, SearchOptions()),
        f"beam {asked.beam}": (first, beam),
        f"beam {asked.beam}, rescored by {asked.reader}": (second, beam),
    }
    times: dict[str, list[float]] = {name: [] for name in searches}
    for turn in range(asked.rounds + 1):
        for name, (recognizer, options) in searches.items():
            began = time.process_time()
            recognizer.recognize(samples, options, requests)
            if turn:  # the first compiles
                times[name].append(time.process_time() - began)
    greedy = times["greedy"]
    print(f"{asked.model}, {BATCH} x {asked.seconds:g} s")
    for name, taken in times.items():
        ratio = statistics.median(one / other for one, other in zip(taken, greedy, strict=True))
        print(f"{name}: {min(taken):.2f} s, {ratio:.2f} x greedy")


if __name__ == "__main__":
    main()
