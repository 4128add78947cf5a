"""Does a second model help, by its attention decoder or as a language model? Words wrong of a beam's best
hypothesis, by its weight.

    python -m ops.accuracy.second --model models/demo --reader whisper-tiny.en [--samples samples/demo-tdt]

Each recording of the folder's manifest is searched once, whole (beam 8); its hypotheses are then ordered with
each weight. Also told: the fewest words that could be wrong with these lists.
"""

import argparse
import json
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np  # noqa: E402 - behind OpenBLAS

from spool.wer import total_errors, word_errors  # noqa: E402
from worker.audio import open_audio  # noqa: E402
from worker.decode.attention.second import SecondReader  # noqa: E402
from worker.decode.result import Answer  # noqa: E402
from worker.decode.search import search  # noqa: E402
from worker.decode.types import DecodeRequest, SearchOptions  # noqa: E402
from worker.decode.words import text_of  # noqa: E402
from worker.models.load import load_model, load_reader  # noqa: E402

LONGEST = 25.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="models/demo")
    parser.add_argument("--reader", default="whisper-tiny.en")
    parser.add_argument("--samples", type=Path, default=Path("samples/demo-tdt"))
    parser.add_argument("--beam", type=int, default=8)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.5, 1.0])
    options = parser.parse_args()
    model, reader = load_model(options.model), load_reader(options.reader)
    asked = SearchOptions("beam", options.beam, options.beam)
    audio, texts, answers = [], [], []
    for line in (options.samples / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        with open_audio(options.samples / entry["file"]) as stream:
            samples = np.concatenate([block[:, 0] for block in stream.blocks()])
        if len(samples) > LONGEST * 16_000 or "text" not in entry:
            continue
        audio.append(samples)
        texts.append(entry["text"])
        answers.append(Answer(tuple(search(model, model.encode([samples]), asked)[0]), None))
    best = total_errors(
        min(
            (word_errors(text, text_of(each, model.tokenizer)) for each in answer.hypotheses),
            key=lambda e: e.rate,
        )
        for text, answer in zip(texts, answers, strict=True)
    )
    print(f"{len(audio)} recordings, fewest words wrong in the lists: {100 * best.rate:.1f} %")
    for weight in options.weights:
        ordered = SecondReader(reader).order(
            audio, answers, model.tokenizer, [DecodeRequest(reader_weight=weight)] * len(audio)
        )
        errors = total_errors(
            word_errors(text, text_of(each.hypotheses[0], model.tokenizer))
            for text, each in zip(texts, ordered, strict=True)
        )
        print(f"weight {weight:4.2f}: {100 * errors.rate:.1f} % of words wrong")


if __name__ == "__main__":
    main()
