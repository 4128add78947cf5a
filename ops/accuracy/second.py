"""Does a second model help, by its attention decoder or as a language model? Prints the word errors of a
beam's best hypothesis by weight.

    python -m ops.accuracy.second --model models/demo --reader whisper-tiny.en [--samples samples/demo-tdt]

Each recording of the folder's manifest is decoded once, whole, with a beam of 8, and its hypotheses are
ranked with each weight. Also prints the fewest errors that these lists allow (the oracle). If the reader is
an ARPA file, it adds the errors of the lattice's best path under it, and of a beam search fused with it.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np  # noqa: E402 - behind OpenBLAS

from spool.domain.recognition import Hypothesis  # noqa: E402
from spool.wer import total_errors, word_errors  # noqa: E402
from worker.audio import open_audio  # noqa: E402
from worker.decode.answer import Answer  # noqa: E402
from worker.decode.attention.second import SecondReader  # noqa: E402
from worker.decode.lattice.word_graph import WordGraph, prune_graph  # noqa: E402
from worker.decode.words import text_of  # noqa: E402
from worker.engine.recognizer import decode_utterances  # noqa: E402
from worker.models.base import SpeechModel  # noqa: E402
from worker.models.language.ngram import NgramLanguageModel  # noqa: E402
from worker.models.load import TextReader, load_model, load_reader  # noqa: E402
from worker.models.requests import DecodeRequest, SearchOptions  # noqa: E402

LONGEST_SECONDS = 25.0
RATE = 16_000
LATTICE = 50.0
"""The pruning beam: wide enough that a reader may still prefer a path far from the best."""


@dataclass(frozen=True)
class Recording:
    """One line of the manifest, and what the model made of it."""

    samples: np.ndarray
    text: str
    answer: Answer


@dataclass(frozen=True)
class Bench:
    """The model, the second reader and the recordings decoded once."""

    model: SpeechModel
    reader: SpeechModel | TextReader
    options: SearchOptions
    recordings: Sequence[Recording]

    def errors(self, hypotheses: Iterable[str]) -> float:
        """Word errors in percent of the references' words."""
        pairs = zip(self.recordings, hypotheses, strict=True)
        return 100 * total_errors(word_errors(recording.text, found) for recording, found in pairs).rate

    def text(self, hypothesis: Hypothesis) -> str:
        return text_of(hypothesis, self.model.tokenizer)

    def oracle(self) -> float:
        """The errors if the best hypothesis of each list were ranked first."""
        return self.errors(
            min(map(self.text, each.answer.hypotheses), key=lambda found: word_errors(each.text, found).rate)
            for each in self.recordings
        )

    def reranked(self, weight: float) -> list[Answer]:
        """The answers, ordered by their score plus `weight` times the reader's."""
        request = DecodeRequest(lattice=LATTICE if self.has_ngrams else None, reader_weight=weight)
        return SecondReader(self.reader).order(
            [each.samples for each in self.recordings],
            [each.answer for each in self.recordings],
            self.model.tokenizer,
            [request] * len(self.recordings),
        )

    @property
    def has_ngrams(self) -> bool:
        return isinstance(self.reader, NgramLanguageModel)

    def fused(self, weight: float) -> Iterator[str]:
        """The best text of each recording in a beam search fused with the reader's n-grams."""
        assert isinstance(self.reader, NgramLanguageModel)
        request = DecodeRequest(language_model=str(self.reader.path), lm_weight=weight)
        for each in self.recordings:
            (answer,) = decode_utterances(self.model, [each.samples], self.options, [request])
            yield self.text(answer.hypotheses[0])


def best_path(graph: WordGraph) -> str:
    """The text of a lattice's best path."""
    best, state, words = prune_graph(graph, 0.0), 0, []
    leaving = {arc.source: arc for arc in reversed(best.arcs)}
    while state in leaving:
        words.append(leaving[state].word)
        state = leaving[state].target
    return " ".join(word for word in words if word)


def decode_folder(
    folder: Path, model: SpeechModel, options: SearchOptions, request: DecodeRequest
) -> Iterator[Recording]:
    """The recordings of a manifest that have a reference text and are short enough to decode whole."""
    for line in (folder / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        with open_audio(folder / entry["file"]) as stream:
            samples = np.concatenate([block[:, 0] for block in stream.blocks()])
        if "text" in entry and len(samples) <= LONGEST_SECONDS * RATE:
            (answer,) = decode_utterances(model, [samples], options, [request])
            yield Recording(samples, entry["text"], answer)


def report(bench: Bench, weight: float) -> str:
    """One line of the output."""
    answers = bench.reranked(weight)
    first = bench.errors(bench.text(each.hypotheses[0]) for each in answers)
    line = f"weight {weight:4.2f}: {first:.1f} % WER"
    if not bench.has_ngrams:
        return line
    paths = bench.errors("" if each.graph is None else best_path(each.graph) for each in answers)
    return f"{line}; lattice {paths:.1f} %, fused {bench.errors(bench.fused(weight)):.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="models/demo")
    parser.add_argument("--reader", default="whisper-tiny.en")
    parser.add_argument("--samples", type=Path, default=Path("samples/demo-tdt"))
    parser.add_argument("--beam", type=int, default=8)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.5, 1.0])
    args = parser.parse_args()
    model, reader = load_model(args.model), load_reader(args.reader)
    options = SearchOptions(decoder="beam", beam=args.beam, nbest=args.beam)
    request = DecodeRequest(lattice=LATTICE if isinstance(reader, NgramLanguageModel) else None)
    recordings = tuple(decode_folder(args.samples, model, options, request))
    bench = Bench(model, reader, options, recordings)
    print(f"{len(recordings)} recordings; oracle of the lists: {bench.oracle():.1f} % WER")
    for weight in args.weights:
        print(report(bench, weight))


if __name__ == "__main__":
    main()
