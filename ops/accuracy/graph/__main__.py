"""Words from phonemes: a decoding graph of pocketsphinx' dictionary and trigram over `hama-phonemes`, and its
word error rate.

    .venv/bin/python -m ops.accuracy.graph SPEECH --wheel FILE [--folder FOLDER] [--lattice]

SPEECH is a folder with `manifest.jsonl` (`models/demo/README.md`); FILE is what `pip download --no-deps
pocketsphinx==5.1.1` gets, of which only the data is read. The trigram is made smaller first
(`ops.accuracy.graph.trigram`), and `spool graph build` makes the graph. The model's 191 symbols are added up
to 39 phones and blank (`spool.sounds.phones`), which are the graph's units. The model writes some words
otherwise than the dictionary ("of" as AA F): such readings are learned on the part `train`. The weight of the
sounds and the cost of a phone are chosen on `dev`, and the figures are of `test`; speakers are others in
each. --folder keeps the graph and what it is made of; --lattice prints those of short clips.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ops.accuracy.graph.trigram import read_trigram, shrink, write_arpa
from ops.accuracy.tables import percent, table
from ops.train.data.features import read_audio
from spool.domain.search.graph import GraphSearch
from spool.sounds.dictionary import DEFAULT_WITNESS
from spool.sounds.phones import END, FRAME_SECONDS, PHONES, SILENCE, PhoneMap
from spool.wer import WordErrors, total_errors, word_errors
from worker.decode.alignment.emissions import FLOOR
from worker.decode.lattice.word_graph import PrunedGraph, with_posteriors
from worker.decode.recorder import LatticeRecorder
from worker.decode.wfst.graph import DecodingGraph, load_graph
from worker.decode.wfst.search import wfst_search
from worker.engine.protocol import Failure
from worker.engine.recognizer import ModelRecognizer
from worker.models.load import load_model
from worker.witness.listening import listen_request

DATA = "pocketsphinx/model/en-us"
SIZES = {"words": 20_000, "bigrams": 200_000, "trigrams": 100_000}
DOMAINS = {"libri": "reading", "so762": "non-native"}
SCALES, PENALTIES = (0.6, 0.8, 1.0, 1.2), (-0.4, 0.0, 0.4)
SETTINGS = GraphSearch(name="phones", graph_beam=14.0, max_active=4000, lattice_beam=6.0)
FAINT = 1e-5
LATTICE, FAINTEST = 5.0, 0.05
TRAINED = 600
"""Clips of each domain from which readings of words are learned."""
LEAST_COUNT, LEAST_SHARE, MOST_READINGS = 3, 0.2, 2
BATCH = 8
Spelling = tuple[str, ...]
_STRESS = re.compile(r"\(\d+\)$")


@dataclass(frozen=True, eq=False)
class Clip:
    """A clip's words, what they were said as, and log-probabilities of the phones, blank last."""

    text: str
    domain: str
    seconds: float
    log_probs: NDArray[np.float32]
    heard: tuple[Spelling, ...]
    """The best phone of each frame, without repeats and silence, divided where the model ends words."""


def learn(clips: Sequence[Clip]) -> list[tuple[str, Spelling]]:
    """How the model writes words, where it hears as many words as were said: readings that are common for
    their word."""
    readings: dict[str, Counter[Spelling]] = defaultdict(Counter)
    for clip in clips:
        words = clip.text.split()
        if len(words) == len(clip.heard):
            for word, spelling in zip(words, clip.heard, strict=True):
                readings[word][spelling] += 1
    return [
        (word, spelling)
        for word, counts in sorted(readings.items())
        for spelling, count in counts.most_common(MOST_READINGS)
        if count >= max(LEAST_COUNT, LEAST_SHARE * counts.total())
    ]


def make_graph(wheel: Path, learned: Sequence[tuple[str, Spelling]], folder: Path) -> Path:
    """Write lexicon, ARPA file and units, and build the graph of them with `spool graph build`."""
    with ZipFile(wheel) as archive:
        dictionary = archive.read(f"{DATA}/cmudict-en-us.dict").decode("utf-8")
        model = read_trigram(archive.read(f"{DATA}/en-us.lm.bin"))
    listed = map(str.split, dictionary.splitlines())
    entries = [(_STRESS.sub("", word), tuple(phones)) for word, *phones in listed]
    entries = list(dict.fromkeys([*entries, *learned]))
    small = shrink(model, {word for word, _ in entries}, **SIZES)
    known = set(small.words)
    lines = [f"{word} {' '.join(phones)}" for word, phones in entries if word in known]
    lexicon, arpa, units = (folder / name for name in ("lexicon.txt", "words.arpa", "units.txt"))
    lexicon.write_text("\n".join(lines) + "\n", encoding="utf-8")
    units.write_text("\n".join(["<blank>", *PHONES]) + "\n", encoding="utf-8")
    write_arpa(small, arpa)
    command = [sys.executable, "-m", "api.cli.main", "graph", "build", "--topology", "corrected"]
    command += ["--lexicon", lexicon, "--arpa", arpa, "--units", units, "--output", folder]  # type: ignore[list-item]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(
        f"{len(known) - 2} words, {len(small.bigrams)} bigrams, {len(small.trigrams)} trigrams; built in "
        f"{time.monotonic() - began:.0f} s"
    )
    return Path(done.stdout.strip())


def listen(speech: Path, part: str, most: int | None = None) -> list[Clip]:
    """The clips of a part, at most so many of a domain, with what the model hears in them."""
    model = load_model(DEFAULT_WITNESS)
    recognizer, symbols = ModelRecognizer(model), model.tokenizer.pieces
    phones, request = PhoneMap(symbols), listen_request(len(symbols))
    lines = [json.loads(line) for line in (speech / "manifest.jsonl").read_text().splitlines()]
    chosen = []
    for domain in DOMAINS:
        chosen += [line for line in lines if (line["split"], line["domain"]) == (part, domain)][:most]
    clips = []
    for together in _batches(sorted(chosen, key=lambda line: line["duration"])):
        audios = [read_audio(speech / line["path"]) for line in together]
        answers = recognizer.recognize(audios, [request] * len(audios))
        for line, answer in zip(together, answers, strict=True):
            if isinstance(answer, Failure):
                raise answer.error
            folded = phones.fold(answer.output.dense(len(symbols) + 1), FLOOR)
            silence = folded[:, len(PHONES) :].sum(axis=1, keepdims=True)
            every = np.concatenate([folded[:, : len(PHONES)], silence], axis=1)
            log_probs = np.log(np.maximum(every, FAINT)).astype(np.float32)
            facts = line["text"], line["domain"], line["duration"]
            clips.append(Clip(*facts, log_probs, _heard(folded)))
    return clips


def _heard(folded: NDArray[np.float32]) -> tuple[Spelling, ...]:
    best = folded.argmax(axis=1).tolist()
    words: list[list[str]] = [[]]
    for label, before in zip(best, [SILENCE, *best], strict=False):
        if label == END:
            words.append([])
        elif label != before and label != SILENCE:
            words[-1].append(PHONES[label])
    return tuple(tuple(word) for word in words if word)


def _batches(lines: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(lines), BATCH):
        yield list(lines[first : first + BATCH])


def decode(
    clips: Sequence[Clip], graph: DecodingGraph, settings: GraphSearch, lattice: float | None = None
) -> tuple[list[WordErrors], list[str], PrunedGraph | None]:
    """The errors and words of each clip, and the first one's lattice."""
    errors, texts, first = [], [], None
    for at in range(0, len(clips), BATCH):
        some = clips[at : at + BATCH]
        lengths = np.array([len(clip.log_probs) for clip in some], np.int32)
        padded = np.zeros((len(some), int(lengths.max()), len(PHONES) + 1), np.float32)
        for row, clip in enumerate(some):
            padded[row, : len(clip.log_probs)] = clip.log_probs
        recorder = LatticeRecorder([lattice] * len(some))
        found = wfst_search(
            mx.array(padded), lengths, len(PHONES), graph, settings, 1, recorder, blank_unit=None
        )
        if at == 0:
            first = recorder.graphs.get(0)
        for clip, hypotheses in zip(some, found, strict=True):
            spoken = hypotheses[0].spoken if hypotheses else ()
            texts.append(" ".join(word.text for word in spoken or ()))
            errors.append(word_errors(clip.text, texts[-1]))
    return errors, texts, first


def by_domain(clips: Sequence[Clip], errors: Sequence[WordErrors]) -> dict[str, WordErrors]:
    """The errors of each domain."""
    return {
        domain: total_errors(own for clip, own in zip(clips, errors, strict=True) if clip.domain == domain)
        for domain in DOMAINS
    }


def choose(clips: Sequence[Clip], graph: DecodingGraph) -> GraphSearch:
    """The settings with the fewest errors over both domains together."""
    tried = []
    for scale, penalty in itertools.product(SCALES, PENALTIES):
        settings = SETTINGS.model_copy(update={"acoustic_scale": scale, "unit_penalty": penalty})
        found = by_domain(clips, decode(clips, graph, settings)[0])
        tried.append((sum(each.rate for each in found.values()), settings))
        print(f"dev, scale {scale}, a phone costs {penalty}:", *(percent(e.rate) for e in found.values()))
    return min(tried, key=lambda each: each[0])[1]


def print_lattice(found: PrunedGraph) -> None:
    """Its words with their beginnings, to a tenth of a second, and posterior probabilities."""
    shares: dict[tuple[float, str], float] = defaultdict(float)
    for arc in with_posteriors(found.words).arcs:
        shares[round(arc.start * FRAME_SECONDS, 1), arc.word] += arc.share
    likely = sorted((*place, share) for place, share in shares.items() if share >= FAINTEST)
    rows = [[f"{start:.1f}", word, f"{share:.2f}"] for start, word, share in likely]
    print(table(["Seconds", "Word", "Posterior"], rows))


def main() -> None:
    """Build, listen, choose, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("speech", type=Path)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="where the graph's files are kept")
    parser.add_argument("--lattice", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        learned = learn(listen(asked.speech, "train", TRAINED))
        print(f"{len(learned)} readings of {len({word for word, _ in learned})} words learned")
        path = make_graph(asked.wheel, learned, folder)
        graph = load_graph(str(path))
    print(f"{graph.arrays.states} states, {graph.arrays.arcs} arcs")
    settings = choose(listen(asked.speech, "dev"), graph)
    clips = listen(asked.speech, "test")
    began = time.monotonic()
    errors, texts, _ = decode(clips, graph, settings)
    took, seconds = time.monotonic() - began, sum(clip.seconds for clip in clips)
    how = f"scale {settings.acoustic_scale}, a phone costs {settings.unit_penalty}"
    print(f"test, {how}: {took / seconds:.2f} x real time")
    rows = [
        [DOMAINS[domain], str(each.words), percent(each.rate)]
        for domain, each in by_domain(clips, errors).items()
    ]
    print(table(["Recordings", "Words", "WER, %"], rows))
    for clip, text in list(zip(clips, texts, strict=True))[:: max(1, len(clips) // 8)]:
        print(f"  said:  {clip.text}\n  heard: {text}")
    if asked.lattice:
        for clip in [each for each in clips if each.domain == "libri"][:3]:
            lattice = decode([clip], graph, settings, LATTICE)[2]
            assert lattice is not None
            print(f"the lattice of: {clip.text}")
            print_lattice(lattice)


if __name__ == "__main__":
    main()
