"""Word error rates of a model, by set, heard by Spool's own engine:

    .venv/bin/python -m ops.train.run.evaluate models/demo --speech speech

Sets are the manifest's test speakers; strings of single digits are joined here, with a fixed seed. Sound
without words is made here too, from another seed than training's. Runs where the worker runs, without
PyTorch.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from ops.train.data import noises
from ops.train.data.engines import say
from ops.train.data.features import RATE, Audio, read_audio
from ops.train.data.prepare import manifest
from ops.train.data.synth import placed
from ops.train.data.voices import FOREIGN, HELD_LANGUAGES, HELD_VARIANTS
from spool.domain.transcript import Word
from spool.wer import WordErrors, total_errors, word_errors
from worker.decode.answer import best_of
from worker.engine.protocol import NOTHING
from worker.engine.recognizer import decode_utterances
from worker.local.transcribe import transcribe_with
from worker.models.load import load_model
from worker.models.nemo.model import NemoModel
from worker.models.requests import SearchOptions

SEED = 20261120
DIGITS = frozenset(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "oh"])
FRAMES_AT_ONCE = 300 * RATE


@dataclass(frozen=True)
class Utterance:
    """Samples at 16 kHz and what is said in them."""

    audio: Audio
    text: str


Sets = dict[str, list[Utterance]]


def recorded(speech: Path) -> Sets:
    """The speech folder's test sets, and the strings of digits of dev and test."""
    sets: Sets = defaultdict(list)
    for row in manifest(speech):
        name = {"so762": "open, non-native", "libri": "open, read", "misc": "open, other"}.get(row["domain"])
        name = name or {"words": "command words", "digits": "single digits"}[row["domain"]]
        if row["domain"] == "so762" and set(row["text"].split()) <= DIGITS and row["split"] != "train":
            sets["strings of digits, spoken"].append(Utterance(read_audio(speech / row["path"]), row["text"]))
        if row["split"] == "test":
            sets[name].append(Utterance(read_audio(speech / row["path"]), row["text"]))
    sets["strings of digits, joined"] = joined_digits(sets["single digits"])
    return sets


def joined_digits(single: Sequence[Utterance]) -> list[Utterance]:
    """Each digit once, in strings of three to nine with pauses of 0.05 to 0.4 s, in a seeded order."""
    rng = np.random.default_rng(SEED)
    order, found = list(rng.permutation(len(single))), []
    while order:
        chosen = [single[int(order.pop())] for _ in range(min(len(order), int(rng.integers(3, 10))))]
        parts = [np.zeros(int(rng.uniform(0.05, 0.4) * RATE), np.float32)]
        for utterance in chosen:
            pause = np.zeros(int(rng.uniform(0.05, 0.4) * RATE), np.float32)
            parts += [utterance.audio, pause]
        whole = np.concatenate(parts)
        bed = 10**-3.0 * rng.standard_normal(len(whole))
        found.append(Utterance((whole + bed).astype(np.float32), " ".join(u.text for u in chosen)))
    return found


def wordless(minutes: float) -> Iterator[tuple[str, Audio]]:
    """Sound without words, that many minutes of every kind; other languages where espeak-ng is."""
    rng = np.random.default_rng(SEED)
    for kind, make in noises.KINDS.items():
        for _ in range(int(minutes * 6)):
            yield kind, make(10 * RATE, rng)
    if shutil.which("espeak-ng"):
        left = minutes * 60
        while left > 0:
            language = str(rng.choice(HELD_LANGUAGES))
            line = " ".join(FOREIGN[language])
            said = say(line, f"{language}+{rng.choice(HELD_VARIANTS)}", rng)
            if said is not None:
                left -= len(said) / RATE
                yield "other languages", placed(said, rng)


def decoded(model: NemoModel, audio: Sequence[Audio], options: SearchOptions) -> list[str]:
    """The text of every utterance, in batches of like length."""
    order = sorted(range(len(audio)), key=lambda i: len(audio[i]))
    texts = [""] * len(audio)
    batch: list[int] = []
    for place, i in enumerate(order):
        batch.append(i)
        last = place + 1 == len(order)
        if last or (len(batch) + 1) * len(audio[order[place + 1]]) > FRAMES_AT_ONCE:
            found = decode_utterances(model, [audio[k] for k in batch], options, [NOTHING] * len(batch))
            for k, answer in zip(batch, found, strict=True):
                texts[k] = model.tokenizer.decode(best_of(answer.hypotheses).tokens)
            batch = []
            mx.clear_cache()
    return texts


def long_recording(
    model: NemoModel, path: Path, options: SearchOptions
) -> tuple[WordErrors, WordErrors, float]:
    """Errors through chunks and stitching, errors cut at the reference segments, median error of starts."""
    reference = json.loads(path.with_suffix(".json").read_text())
    (result,) = transcribe_with(model, [path.with_name(reference["audio"])], options)
    if result.transcript is None:
        raise result.error or AssertionError
    errors = word_errors(reference["text"], result.transcript.text)
    audio = read_audio(path.with_name(reference["audio"]))
    pieces = [audio[int(s["start"] * RATE) : int(s["end"] * RATE)] for s in reference["segments"]]
    texts = decoded(model, pieces, options)
    cut = total_errors(word_errors(s["text"], t) for s, t in zip(reference["segments"], texts, strict=True))
    return errors, cut, time_error(reference["words"], result.transcript.words)


def time_error(told: Sequence[dict[str, Any]], words: Sequence[Word]) -> float:
    """Median seconds between the starts of words that were recognised and their reference's."""
    matcher = SequenceMatcher(None, [w["w"] for w in told], [w.text for w in words], autojunk=False)
    offs = [
        abs(told[block.a + k]["start"] - words[block.b + k].start)
        for block in matcher.get_matching_blocks()
        for k in range(block.size)
    ]
    return float(np.median(offs)) if offs else float("nan")


def interval(errors: Sequence[WordErrors]) -> tuple[float, float]:
    """95 % of the rates of a thousand redraws of the utterances (bootstrap)."""
    rng = np.random.default_rng(SEED)
    edits, words = (np.array([getattr(e, k) for e in errors]) for k in ("edits", "words"))
    drawn = rng.integers(0, len(errors), (1000, len(errors)))
    rates = edits[drawn].sum(1) / np.maximum(1, words[drawn].sum(1))
    low, high = np.percentile(rates, [2.5, 97.5])
    return float(low), float(high)


def print_sets(model: NemoModel, sets: Sets, options: SearchOptions) -> None:
    print("| set | utterances | words | WER | 95 % |\n| --- | ---: | ---: | ---: | --- |")
    for name in sorted(sets):
        texts = decoded(model, [u.audio for u in sets[name]], options)
        errors = [word_errors(u.text, t) for u, t in zip(sets[name], texts, strict=True)]
        total, (low, high) = total_errors(errors), interval(errors)
        row = f"{total.rate:.1%} | {low:.1%} to {high:.1%}"
        print(f"| {name} | {len(errors)} | {total.words} | {row} |", flush=True)


def print_wordless(model: NemoModel, minutes: float, options: SearchOptions) -> None:
    heard = list(wordless(minutes))
    texts = decoded(model, [audio for _, audio in heard], options)
    words: dict[str, int] = defaultdict(int)
    length: dict[str, float] = defaultdict(float)
    for (kind, audio), text in zip(heard, texts, strict=True):
        words[kind] += len(text.split())
        length[kind] += len(audio) / RATE / 60
    print("\n| without words | minutes | invented words a minute |\n| --- | ---: | ---: |")
    for kind, minutes_heard in length.items():
        print(f"| {kind} | {minutes_heard:.1f} | {words[kind] / minutes_heard:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.train.run.evaluate", description=__doc__)
    parser.add_argument("model", help="model folder")
    parser.add_argument("--speech", type=Path, required=True, help="folder with manifest.jsonl")
    parser.add_argument(
        "--synthetic", type=Path, help="folder of held-out synthetic speech (var/train/synth_test)"
    )
    parser.add_argument("--decoder", choices=("greedy", "beam"), default="greedy")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--head", choices=("auto", "tdt", "ctc"), default="auto")
    parser.add_argument("--minutes", type=float, default=3.0, help="of every kind of sound without words")
    parser.add_argument("--long", action="store_true", help="the long recordings too")
    asked = parser.parse_args()
    model = load_model(asked.model)
    if not isinstance(model, NemoModel):
        parser.error(f"{asked.model} is no FastConformer model")
    options = SearchOptions(decoder=asked.decoder, beam=asked.beam, head=asked.head)
    sets = recorded(asked.speech)
    if asked.synthetic:
        rows = manifest(asked.synthetic)
        sets["synthetic, unseen voices"] = [
            Utterance(read_audio(asked.synthetic / row["path"]), row["text"]) for row in rows
        ]
    print(f"{model.name} {model.info.sha256[:12]}, {asked.decoder}, head {asked.head}\n")
    print_sets(model, sets, options)
    print_wordless(model, asked.minutes, options)
    if asked.long:
        print("\n| long recording | through chunks | cut at its segments | word times off |")
        print("| --- | ---: | ---: | ---: |")
        for path in sorted((asked.speech / "long").glob("*.flac")):
            whole, cut, off = long_recording(model, path, options)
            print(f"| {path.stem} | {whole.rate:.1%} | {cut.rate:.1%} | {off:.2f} s |", flush=True)


if __name__ == "__main__":
    main()
