"""Compares our Canary with NeMo's answers (its beam repaired) for small models of each shape.

    python -m ops.accuracy.canary.oracle --models FOLDER --dumps FOLDER --audio FOLDER [--width N]

The models' folder holds `NAME.nemo`. Each dump (NAME.npz) holds encoder frames, decoder layers,
log-probabilities, greedy tokens, n-best lists for several prompts, texts, word stamps and forced alignments
of some recordings of the audio folder. All utterances and prompts of a search go through as one batch, in
shuffled order, once from the audio and once from NeMo's frames. Prints two lines for each model; exits with 1
if an answer differs or a number is outside its tolerance.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from ops.accuracy.agreement import Agreement
from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 - behind OpenBLAS
import numpy as np  # noqa: E402
import soundfile  # noqa: E402

from worker.decode.alignment.aligner import align_texts  # noqa: E402
from worker.decode.alignment.words import align_words, marks_of, spell_words  # noqa: E402
from worker.decode.attention.beam import AttentionSearch, KeptBeam, SearchAnswer, SearchRequest  # noqa: E402
from worker.models.attention.stamps import split_at_stamps  # noqa: E402
from worker.models.attention.state import EncodedBatch, EncodedWindow, Memory  # noqa: E402
from worker.models.base import ModelFiles  # noqa: E402
from worker.models.canary.load import Canary  # noqa: E402
from worker.models.canary.model import CanaryModel  # noqa: E402
from worker.models.requests import DecodeRequest  # noqa: E402

RATE = 16_000
TOLERANCES = {
    "frames": 2e-5,
    "layers": 2e-5,
    "log-probabilities": 5e-4,
    "scores": 5e-4,
    # From the audio: the rounding of features and encoder is in each of some hundred tokens.
    "scores from audio": 5e-3,
}
SPECIAL = re.compile(r"<\|[^|]*\|>")
Dump = Any


class Oracle(Agreement):
    """One model and its dump."""

    def __init__(self, model: CanaryModel, dump: Dump, audio: Path, width: int) -> None:
        super().__init__()
        self.model, self.dump, self.width = model, dump, width
        self.prompts = json.loads(str(dump["prompts"]))
        self.samples = [_read(audio / f"{name}.wav") for name in dump["wavs"]]
        self.encoded = model.encode(self.samples)
        self.given = [self._window(dump[f"dec_in.{row}"]) for row in range(len(self.samples))]

    def _window(self, frames: np.ndarray) -> EncodedWindow:
        """NeMo's own frames behind the projection."""
        rows = mx.array(frames)[None]
        length = np.array([len(frames)], np.int32)
        return EncodedWindow(EncodedBatch(rows, length, self.model.head.cross_memory(rows), length), 0)

    def numbers(self) -> None:
        dump, head = self.dump, self.model.head
        for row, window in enumerate(self.encoded):
            expected = dump[f"dec_in.{row}"]
            frames = np.array(window.batch.frames[window.index][: window.length])
            self.gap("frames", float(np.abs(frames - expected).max() / np.abs(expected).max()))
            if f"logp.{row}.asr" in dump:
                tokens = [*self.prompts["asr"]["ids"], *dump[f"greedy.{row}.asr"].tolist()]
                forced = head.force(Memory.of([self.given[row]]), np.array([tokens], np.int32))
                logits = np.array(head.logits(forced.hidden)[0], np.float64)
                logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
                expected = dump[f"logp.{row}.asr"]
                self.gap("log-probabilities", float(np.abs(logs[:, : expected.shape[1]] - expected).max()))
                if row == 0:
                    for layer, state in enumerate(np.array(each[0]) for each in forced.states):
                        own = dump[f"dec_layer{layer}.0"]
                        self.gap("layers", float(np.abs(state - own).max() / np.abs(own).max()))

    def prompted(self) -> None:
        """Prompts from slots, as `--prompt` takes them."""
        for name, prompt in self.prompts.items():
            options = DecodeRequest(prompt=json.dumps(prompt["slots"]), single=True)
            found = self.model.prepare(options).previous
            self.note("prompts", list(found) == prompt["ids"], name)

    def searches(self, encoded: list[EncodedWindow], scores: str) -> None:
        """All of one search in one batch: unlike lengths, unlike prompts, shuffled."""
        groups: dict[KeptBeam, list[str]] = {}
        ends = self.model.end_rule.ends
        for key in self.dump:
            if key.startswith("greedy."):
                groups.setdefault(KeptBeam(ends), []).append(key)
            elif key.startswith("beam.") and key.endswith(".tok"):
                beam, alpha = re.fullmatch(r"beam\.\d+\.\w+\.k(\d+)\.lp([\d.]+)\.tok", key).groups()  # type: ignore[union-attr]
                groups.setdefault(KeptBeam(ends, int(beam), float(alpha), 1), []).append(key)
        for settings, keys in groups.items():
            order = np.random.default_rng(0).permutation(len(keys)).tolist()
            search = AttentionSearch(self.model.head, self.model.rules, settings, self.width)
            requests = [self._request(keys[index], encoded) for index in order]
            for answer in search.run(requests):
                self.compare(answer, scores)

    def _request(self, key: str, encoded: list[EncodedWindow]) -> SearchRequest:
        _, row, prompt = key.split(".")[:3]
        window, ids = encoded[int(row)], tuple(self.prompts[prompt]["ids"])
        most = min(self.model.head.max_tokens, window.length + self.model.config.delta) - len(ids)
        return SearchRequest(key, window, ids, limit=max(most, 1))

    def compare(self, answer: SearchAnswer, scores: str) -> None:
        key, found = str(answer.key), answer.hypotheses
        if key.startswith("greedy."):
            self.note("greedy", list(found[0].tokens) == self.dump[key].tolist(), key)
            return
        base = key.removesuffix(".tok")
        lengths = self.dump[f"{base}.len"]
        expected = [row[:length].tolist() for row, length in zip(self.dump[key], lengths, strict=True)]
        same = [list(each.tokens) for each in found] == expected
        self.note("n-best lists", same, base)
        if same:
            gaps = [
                abs(each.score - own) for each, own in zip(found, self.dump[f"{base}.score"], strict=True)
            ]
            self.gap(scores, max(gaps))
        text = "text" + base.removeprefix("beam").removesuffix(".k4.lp0")
        if same and text in self.dump and base.endswith(".k4.lp0"):
            texts = [SPECIAL.sub("", each).strip() for each in json.loads(str(self.dump[text]))]
            self.note(
                "texts", [self.model.tokenizer.decode(each.tokens).strip() for each in found] == texts, text
            )

    def times(self) -> None:
        frame, tokenizer = self.model.config.frame_seconds, self.model.tokenizer
        for key in self.dump:
            if key.startswith("words."):
                tokens = self.dump["greedy" + key.removeprefix("words")].tolist()
                runs = split_at_stamps(tokens, tokenizer)
                pairs = [
                    (run.text, round(run.start * frame, 2), round(run.end * frame, 2))
                    for run in runs
                    if run.start is not None and run.end is not None
                ]
                words = json.loads(str(self.dump[key]))["word"]
                expected = [(each["word"], each["start"], each["end"]) for each in words]
                kept = [each for each in pairs if each in expected]
                self.note("stamped words", kept == expected, key)
            elif re.fullmatch(r"align\.\d+", key):
                self._aligned(int(key.removeprefix("align.")), frame)

    def _aligned(self, row: int, frame: float) -> None:
        """From NeMo's log-probabilities, and from the audio through the model's own aligner."""
        aligner = self.model.aligner
        assert aligner is not None
        text, expected = str(self.dump[f"align_text.{row}"]), json.loads(str(self.dump[f"align.{row}"]))
        spelled = spell_words(text, aligner.tokenizer)
        columns = [*(token for _, own in spelled for token in own), aligner.tokenizer.blank]
        logs = self.dump[f"align_logp.{row}"][:, columns]
        ways = {
            "aligned": align_words(logs, spelled, marks_of(aligner.tokenizer.pieces), frame),
            "aligned from audio": align_texts(aligner, [self.samples[row]], [text])[0],
        }
        for what, words in ways.items():
            found = [(word.text, round(word.start, 2), round(word.end, 2)) for word in words or ()]
            tokens = [
                (each.token, round(each.first * frame, 2), round(each.last * frame, 2))
                for word in words or ()
                for each in word.tokens
            ]
            named = [(each["word"], each["start"], each["end"]) for each in expected["word"]]
            pieces = [(each["token_id"], each["start"], each["end"]) for each in expected["char"]]
            self.note(f"words {what}", found == named, f"align.{row}")
            self.note(f"tokens {what}", tokens == pieces, f"align.{row}")


def _read(path: Path) -> np.ndarray:
    samples, rate = soundfile.read(path, dtype="int16")
    if rate != RATE or samples.ndim != 1:
        raise SystemExit(f"{path}: {rate} Hz, {samples.ndim} dimensions; 16 kHz mono is needed")
    return samples.astype(np.float32) / 32768


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--dumps", type=Path, required=True)
    parser.add_argument("--audio", type=Path, required=True)
    parser.add_argument("--width", type=int, default=32, help="utterances searched at a time")
    options = parser.parse_args(arguments)
    failed, compared = False, 0
    for path in sorted(options.models.glob("*.nemo")):
        family, files = Canary(), ModelFiles(path, path.stem)
        dump_path = options.dumps / f"{path.stem}.npz"
        if not dump_path.is_file() or not family.matches(files):
            continue
        dump = dict(np.load(dump_path))
        oracle = Oracle(family.load(files, mx.float32), dump, options.audio, options.width)
        oracle.numbers()
        oracle.prompted()
        oracle.searches(oracle.encoded, "scores from audio")
        oracle.searches(oracle.given, "scores")
        oracle.times()
        compared += 1
        print(f"{path.stem}: {oracle}")
        failed |= oracle.fails(TOLERANCES)
    return int(failed or not compared)


if __name__ == "__main__":
    sys.exit(main())
