"""Does a second model help, by its attention decoder or as a language model? Counts the wrong words of a
beam's best hypothesis for each weight.

    python -m ops.accuracy.second --model models/demo --reader whisper-tiny.en [--samples samples/demo-tdt]

Each recording of the folder's manifest is searched once, whole (beam 8), and its hypotheses are ordered with
each weight. Also prints the fewest wrong words that these lists allow and, for an ARPA file as reader, the
best path of the whole lattice under it and the best of a search that hears the file itself.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np  # noqa: E402 - behind OpenBLAS

from spool.wer import total_errors, word_errors  # noqa: E402
from worker.audio import open_audio  # noqa: E402
from worker.decode.attention.second import SecondReader  # noqa: E402
from worker.decode.lattice.word_graph import WordGraph, pruned  # noqa: E402
from worker.decode.types import DecodeRequest, SearchOptions  # noqa: E402
from worker.decode.utterances import decode_utterances  # noqa: E402
from worker.decode.words import text_of  # noqa: E402
from worker.models.language.ngram import NgramLanguageModel  # noqa: E402
from worker.models.load import load_model, load_reader  # noqa: E402

LONGEST = 25.0


def best_words(graph: WordGraph) -> str:
    """The text of a lattice's best path."""
    best, state, words = pruned(graph, 0.0), 0, []
    leaving = {arc.source: arc for arc in reversed(best.arcs)}
    while state in leaving:
        words.append(leaving[state].word)
        state = leaving[state].target
    return " ".join(word for word in words if word)


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
    grams = isinstance(reader, NgramLanguageModel)
    plain = DecodeRequest(lattice=50.0 if grams else None)
    audio, texts, answers = [], [], []
    for line in (options.samples / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        with open_audio(options.samples / entry["file"]) as stream:
            samples = np.concatenate([block[:, 0] for block in stream.blocks()])
        if len(samples) > LONGEST * 16_000 or "text" not in entry:
            continue
        audio.append(samples)
        texts.append(entry["text"])
        answers += decode_utterances(model, [samples], asked, [plain], None)
    best = total_errors(
        min(
            (word_errors(text, text_of(each, model.tokenizer)) for each in answer.hypotheses),
            key=lambda e: e.rate,
        )
        for text, answer in zip(texts, answers, strict=True)
    )
    print(f"{len(audio)} recordings, fewest words wrong in the lists: {100 * best.rate:.1f} %")
    for weight in options.weights:
        ask = replace(plain, reader_weight=weight)
        ordered = SecondReader(reader).order(audio, answers, model.tokenizer, [ask] * len(audio))
        errors = total_errors(
            word_errors(text, text_of(each.hypotheses[0], model.tokenizer))
            for text, each in zip(texts, ordered, strict=True)
        )
        print(f"weight {weight:4.2f}: {100 * errors.rate:.1f} % of words wrong", end="")
        if isinstance(reader, NgramLanguageModel):
            whole = total_errors(
                word_errors(text, best_words(each.graph))
                for text, each in zip(texts, ordered, strict=True)
                if each.graph is not None
            )
            heard = DecodeRequest(lm=str(reader.path), alpha=weight)
            fused = total_errors(
                word_errors(
                    text,
                    text_of(
                        decode_utterances(model, [each], asked, [heard], None)[0].hypotheses[0],
                        model.tokenizer,
                    ),
                )
                for text, each in zip(texts, audio, strict=True)
            )
            print(
                f"; of the whole lattice {100 * whole.rate:.1f} %, in the search {100 * fused.rate:.1f} %",
                end="",
            )
        print()


if __name__ == "__main__":
    main()
