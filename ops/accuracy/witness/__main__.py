"""How many invented and lost sentences the witness finds, and how many true ones it flags.

    .venv/bin/python -m ops.accuracy.witness SPEECH [--fit] [--inventions MODEL …]

SPEECH is a folder with `manifest.jsonl` (`models/demo/README.md`). Tapes of reading and of non-native speech
(`ops.accuracy.witness.tapes`) are heard once, and checked as they are and with sentences planted and left
out; each sentence's times are off by 0.3 s (standard deviation), and there are no times of words. Intervals
are 95 % (Wilson); sentences have at least four words. The weights and the threshold in `worker.witness.judge`
come from the part `train`, which `--fit` fits again; figures are of the part `test`, whose speakers are
others. `--inventions` lets recognisers of the catalogue transcribe speech around passages without English
words: there every sentence is invented. Beside what the witness flags stands what a limit on the recogniser's
own confidence catches, and what the speech detector leaves.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
import soundfile

from ops.accuracy.whisper.languages import SAID, VOICES, speak
from ops.accuracy.whisper.sounds import hum, music, white_noise
from ops.accuracy.witness.tapes import RATE, Samples, Tape, babbles, make_tapes
from spool.domain.transcript import Segment, Transcript
from spool.sounds.alignment import Line
from spool.sounds.phones import PhoneFrames
from worker.local.transcribe import transcribe_files
from worker.local.witness import Listener, check_result, load_listener
from worker.models.requests import DecodeRequest, SearchOptions
from worker.witness.judge import NEAR_SECONDS, SEGMENT_LIMIT, check_transcript, segment_features
from worker.witness.transcripts import GivenSegment, GivenTranscript, GivenWord

IN_PLACE = "in place of speech"
OFF_SECONDS = 0.3
LEAST_WORDS = 4
DOUBT = 0.5
"""Of a word's confidence, below which the page marks it."""
DOMAINS = {"libri": "reading", "so762": "non-native"}
LIMITS: dict[str, dict[str, int | None]] = {
    "train": {"libri": 9, "so762": 60},
    "test": {"libri": None, "so762": None},
}
"""Tapes at most."""


@dataclass
class Count:
    """How many of how many."""

    found: int = 0
    of: int = 0

    def add(self, found: bool) -> None:
        self.found += found
        self.of += 1

    def __str__(self) -> str:
        if not self.of:
            return "none"
        low, high = wilson(self.found, self.of)
        return f"{self.found} of {self.of} ({low:.1%} to {high:.1%})"


def wilson(found: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    z, share = 1.96, found / of
    middle = share + z * z / (2 * of)
    half = z * float(np.sqrt(share * (1 - share) / of + z * z / (4 * of * of)))
    return max(0.0, middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


@dataclass
class Plants:
    """Sentences of a tape and ones that nobody said there, by kind."""

    true: list[GivenSegment] = field(default_factory=list)
    planted: dict[str, list[GivenSegment]] = field(default_factory=dict)

    def add(self, kind: str, start: float, end: float, text: str) -> None:
        """Plant a sentence."""
        self.planted.setdefault(kind, []).append(segment(start, end, text))


def segment(start: float, end: float, text: str) -> GivenSegment:
    return GivenSegment(max(0.0, start), max(0.0, start, end), text, tuple(map(GivenWord, text.split())))


def plant(tape: Tape, texts: Sequence[str], rng: np.random.Generator) -> Plants:
    """Inventions of each kind for the tape. texts: sentences to invent."""

    def invent(like: str = "") -> str:
        drawn = [texts[at] for at in rng.integers(len(texts), size=15)]
        return min(drawn, key=lambda text: abs(len(text) - len(like))) if like else drawn[0]

    plants = Plants()
    for number, line in enumerate(tape.lines):
        off = rng.normal(0, OFF_SECONDS, 2)
        plants.true.append(segment(line.start + off[0], line.end + off[1], line.text))
        middle, text = (line.start + line.end) / 2, invent()
        half = max(0.17 * len(text.split()), 0.6)
        if number % 2 == 0:
            plants.add(IN_PLACE, line.start, line.end, invent(line.text))
        else:
            plants.add("squeezed in", middle - half, middle + half, text)
    for before, (start, end) in zip(tape.lines, tape.pauses, strict=False):
        if end - start >= 1.0:
            plants.add("over a pause", start, end, invent())
            if len(before.text.split()) >= LEAST_WORDS:
                plants.add("said again in a pause", start, end, before.text)
    start, end, kind = tape.sound
    for at in (0.0, 2.0, 4.0):
        plants.add(f"over {kind}", start + at, min(start + at + 3, end), invent())
    return plants


def measure(listener: Listener, tapes: Sequence[Tape], rng: np.random.Generator) -> dict[str, Count]:
    """The table's rows for tapes of one domain."""
    rows: dict[str, Count] = {"true sentences flagged": Count(), "of fewer than four words flagged": Count()}
    for tape, frames, plants in _heard(listener, tapes, rng):
        found = check_transcript(GivenTranscript(tuple(plants.true)), [frames], listener.lexicon)
        for each in found.segments:
            is_long = len(each.given.words) >= LEAST_WORDS
            rows["true sentences flagged" if is_long else "of fewer than four words flagged"].add(
                each.flagged
            )
        for kind, invented in plants.planted.items():
            others = plants.true[1::2] if kind == IN_PLACE else plants.true
            together = GivenTranscript((*invented, *others))
            for each in check_transcript(together, [frames], listener.lexicon).segments[: len(invented)]:
                rows.setdefault(kind, Count()).add(each.flagged)
        for left_out in range(3):
            kept = [each for at, each in enumerate(plants.true) if at % 3 != left_out]
            spans = check_transcript(
                GivenTranscript(tuple(kept)), [frames], listener.lexicon
            ).speech_without_words
            for lost in plants.true[left_out::3]:
                if len(lost.words) >= LEAST_WORDS:
                    heard = any(span.start < lost.end and span.end > lost.start for span in spans)
                    rows.setdefault("deleted sentences found", Count()).add(heard)
        start, end, _ = tape.sound
        clear = [span for span in found.speech_without_words if span.end < start or span.start > end]
        rows.setdefault("tapes with speech without words, none deleted", Count()).add(bool(clear))
    return rows


def _heard(
    listener: Listener, tapes: Sequence[Tape], rng: np.random.Generator
) -> Iterable[tuple[Tape, PhoneFrames, Plants]]:
    texts = [
        line.text for tape in tapes for line in tape.lines if LEAST_WORDS <= len(line.text.split()) <= 20
    ]
    for tape in tapes:
        own = {line.text for line in tape.lines}
        others = [text for text in texts if text not in own]
        (frames,) = listener.hear([tape.samples[:, None]])
        yield tape, frames, plant(tape, others, rng)


def fit(listener: Listener, speech: Path) -> str:
    """The weights of the part `train`, and the score below which half a percent of its non-native true lines
    are."""
    rng, said, invented, foreign = np.random.default_rng(0), [], [], []
    for number, (domain, most) in enumerate(LIMITS["train"].items()):
        for _, frames, plants in _heard(listener, make_tapes(speech, domain, "train", number + 1, most), rng):
            true = [each for each in plants.true if len(each.words) >= LEAST_WORDS]
            said.append(_features(listener, frames, true))
            invented.append(
                _features(listener, frames, [each for own in plants.planted.values() for each in own])
            )
            if domain == "so762":
                foreign.append(said[-1])
    rows, truth = np.concatenate([*said, *invented]), sum(map(len, said))
    weights, constant = _logistic(rows, truth)
    scores = np.sort(np.concatenate(foreign) @ weights + constant)
    limit = scores[int(0.005 * len(scores))]
    return (
        f"weights {weights.round(3).tolist()}, constant {constant:.3f}, limit {limit:.2f}, {truth} true ones"
    )


def _features(listener: Listener, frames: PhoneFrames, segments: Sequence[GivenSegment]) -> np.ndarray:
    lines = []
    for each in segments:
        words = tuple((listener.lexicon.pronounce(word.text) or ((),))[0] for word in each.words)
        first, last = frames.frame(each.start - NEAR_SECONDS), frames.frame(each.end + NEAR_SECONDS)
        lines.append(Line(first, max(last, first + 1), words))
    return segment_features(frames, lines)


def _logistic(rows: np.ndarray, truth: int) -> tuple[np.ndarray, float]:
    """Logistic regression by Newton's method, both classes weighing the same; the first `truth` rows are
    true."""
    said = np.arange(len(rows)) < truth
    share = np.where(said, 0.5 / said.mean(), 0.5 / (1 - said.mean())) / len(rows)
    middle, spread = rows.mean(axis=0), rows.std(axis=0)
    scaled = np.c_[(rows - middle) / spread, np.ones(len(rows))]
    weights = np.zeros(scaled.shape[1])
    for _ in range(60):
        odds = 1 / (1 + np.exp(-scaled @ weights))
        slope = scaled.T @ ((odds - said) * share) + 1e-3 * weights
        curve = (scaled * (share * odds * (1 - odds))[:, None]).T @ scaled + 1e-3 * np.eye(len(weights))
        weights -= np.linalg.solve(curve, slope)
    return weights[:-1] / spread, float(weights[-1] - (weights[:-1] / spread * middle).sum())


@dataclass
class Caught:
    """Of sentences that a recogniser wrote: how many the witness flags, how many have a mean confidence of
    their words below `DOUBT`, and how many it writes with the speech detector. abstained: of how many the
    witness judged nothing."""

    written: int = 0
    flagged: int = 0
    unsure: int = 0
    detected: int = 0
    abstained: int = 0

    def __str__(self) -> str:
        found = Count(self.flagged, self.written)
        return f"{self.written} | {found} | {self.abstained} | {self.unsure} | {self.detected}"


@dataclass(frozen=True)
class Passage:
    """A recording of speech with a passage that has no English words, from `start` to `end` in seconds."""

    samples: Samples
    start: float
    end: float

    def has(self, segment: Segment) -> bool:
        """Whether the middle of a segment is in the passage."""
        return self.start < (segment.start + segment.end) / 2 < self.end


def inventions(listener: Listener, models: Sequence[str], speech: Path) -> Iterable[tuple[str, str, Caught]]:
    """By recogniser and sound: of the sentences in passages without English words, all invented, and, last,
    of those around them, hardly any of which is."""
    passages = _passages(speech)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.wav" for number in range(len(passages))]
        for path, passage in zip(files, passages.values(), strict=True):
            soundfile.write(path, passage.samples, RATE)
        for model in models:
            ask = DecodeRequest(language=None if model.endswith(".en") else "en")
            around = Caught()
            for path, (name, passage) in zip(files, passages.items(), strict=True):
                inside = Caught()
                for detector in (False, True):
                    (result,) = transcribe_files([path], model, SearchOptions(), ask=ask, detector=detector)
                    checked = result if detector else check_result(listener, result)
                    assert checked.transcript is not None
                    _count(checked.transcript, passage, inside, around, detector=detector)
                yield model, name, inside
            yield model, "speech around these", around


def _count(
    transcript: Transcript, passage: Passage, inside: Caught, around: Caught, *, detector: bool
) -> None:
    for each in transcript.segments:
        own = transcript.words[each.first_word : each.last_word + 1]
        if len(own) < LEAST_WORDS:
            continue
        caught = inside if passage.has(each) else around
        if detector:
            caught.detected += 1
            continue
        caught.written += 1
        caught.flagged += each.flagged
        caught.unsure += float(np.mean([word.confidence for word in own])) < DOUBT
        caught.abstained += transcript.witness is not None and bool(transcript.witness.abstained)


def _passages(speech: Path) -> dict[str, Passage]:
    """Each sound between a few English lines, and by itself."""
    sounds = _wordless(speech)
    tapes = make_tapes(speech, "libri", "test", 5, len(sounds))
    passages = {}
    for number, (name, samples) in enumerate(sounds.items()):
        tape = tapes[number % len(tapes)]
        middle = round(tape.lines[2].end * RATE)
        parts = (tape.samples[:middle], samples, tape.samples[middle : 2 * middle])
        start = middle / RATE
        passages[name] = Passage(np.concatenate(parts), start, start + len(samples) / RATE)
        passages[f"{name}, nothing else"] = Passage(samples, 0.0, len(samples) / RATE)
    return passages


def _wordless(speech: Path) -> dict[str, Samples]:
    """Sounds without English words, about half a minute each."""
    rng = np.random.default_rng(7)
    (tape,) = make_tapes(speech, "libri", "test", 9, 1)
    pieces = [tape.samples[at : at + RATE // 4] for at in rng.integers(len(tape.samples) - RATE, size=2)]
    made = {
        "noise": np.concatenate([white_noise(15.0, -30.0), hum(15.0, -20.0)]),
        "music": music(30.0),
        "a quarter of a second of speech in loops": np.concatenate([np.tile(each, 60) for each in pieces]),
        "babble": np.concatenate(babbles(speech, 4))[: 30 * RATE],
    }
    for language in ("fr", "de", "es"):
        made[f"speech in {language} (espeak-ng)"] = np.concatenate(
            [speak(SAID[language], f"{language}+{voice}") for voice in VOICES]
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.witness", description=__doc__)
    parser.add_argument("speech", type=Path)
    parser.add_argument(
        "--fit", action="store_true", help="fit the weights on the part `train`, and print them"
    )
    parser.add_argument("--inventions", nargs="*", default=[], metavar="MODEL")
    parser.add_argument("--model", default="hama-phonemes", help="the phoneme model")
    asked = parser.parse_args()
    listener = load_listener(asked.model)
    if asked.fit:
        print(fit(listener, asked.speech))
        return
    if asked.inventions:
        columns = ("recogniser", "sound", "written", "flagged", "not judged", "unsure", "with the detector")
        print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
        for model, name, caught in inventions(listener, asked.inventions, asked.speech):
            print(f"| {model} | {name} | {caught} |", flush=True)
        return
    print(f"Threshold {SEGMENT_LIMIT:g}, carried from the part `train`.\n")
    tables = {}
    for number, (domain, most) in enumerate(LIMITS["test"].items()):
        tapes = make_tapes(asked.speech, domain, "test", number + 3, most)
        tables[domain] = measure(listener, tapes, np.random.default_rng(number))
    names = dict.fromkeys(name for rows in tables.values() for name in rows)
    print("| | " + " | ".join(DOMAINS.values()) + " |\n|---|" + "---|" * len(DOMAINS))
    for name in names:
        print(
            f"| {name} | " + " | ".join(str(tables[domain].get(name, Count())) for domain in DOMAINS) + " |"
        )


if __name__ == "__main__":
    main()
