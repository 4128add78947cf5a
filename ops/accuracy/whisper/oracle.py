"""Compares our Whisper with openai-whisper's answers on real weights and recordings.

    python -m ops.accuracy.whisper.oracle --models FOLDER --dumps FOLDER --speech FOLDER [--width N]

The models' folder holds a folder for each name (`tiny.en`, `base`). Each dump (.npz) names its model,
recording and options and holds the prompt, greedy tokens, every n-best list of BeamSearchDecoder, word times
and samples of encoder and logits. Prints a line for each dump and the counts; exits with 1 if anything
differs.
"""

import argparse
import hashlib
import json
import math
import sys
import types
from pathlib import Path
from typing import Any, cast

from ops.accuracy.agreement import Agreement
from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 - behind OpenBLAS
import numpy as np  # noqa: E402
import soundfile  # noqa: E402

from worker.decode.attention.beam import AttentionSearch, BeamSettings, ScoredTokens, SearchRequest  # noqa: E402  # noqa: E402
from worker.models.attention.alignment import align_tokens  # noqa: E402
from worker.models.attention.state import EncodedBatch, EncodedWindow  # noqa: E402
from worker.models.conformer.config import PreprocessorConfig  # noqa: E402
from worker.models.front_ends.log_mel import mel_filters  # noqa: E402
from worker.models.whisper.model import WhisperModel, load_whisper  # noqa: E402
from worker.models.whisper.rules import WhisperOptions  # noqa: E402

SCORE_TOLERANCE = 2e-3
RATE = 16_000
Dump = Any


def read_recording(folder: Path, name: str) -> np.ndarray:
    """`a.flac` or `a.flac@12.5-40.25` (seconds) as float32 of its 16-bit samples."""
    path, _, span = name.partition("@")
    first, last = (float(edge) for edge in span.split("-")) if span else (0.0, None)
    stop = None if last is None else round(last * RATE)
    samples, rate = soundfile.read(folder / path, dtype="int16", start=round(first * RATE), stop=stop)
    if rate != RATE or samples.ndim != 1:
        raise SystemExit(f"{folder / path}: {rate} Hz, {samples.ndim} dimensions; 16 kHz mono is needed")
    return samples.astype(np.float32) / 32768


def log_mel_padded(samples: np.ndarray, mels: int) -> np.ndarray:
    """OpenAI's `transcribe` padding: zeros behind the log-mel; the product itself pads the audio."""
    frames = np.lib.stride_tricks.sliding_window_view(
        np.pad(np.pad(samples.astype(np.float64), (0, 480_000)), 200, mode="reflect"), 400
    )[::160][: len(samples) // 160 + 3000]
    taper = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(np.fft.rfft(frames * taper, axis=1)) ** 2
    mel = np.log10(np.maximum(power @ mel_filters(PreprocessorConfig(features=mels, n_fft=400)).T, 1e-10))
    mel = (np.maximum(mel, mel.max() - 8) + 4) / 4
    padded = np.zeros((3000, mels), np.float32)
    kept = min(len(samples) // 160, 3000)
    padded[:kept] = mel[:kept]
    return padded


def encode(model: WhisperModel, samples: np.ndarray, padding: str) -> EncodedWindow:
    if padding == "audio":
        return model.encode([samples], [True])[0]
    frames = model.encoder(mx.array(log_mel_padded(samples, model.dims.n_mels))[None])
    length = np.array([len(samples) // 320], np.int32)
    return EncodedWindow(EncodedBatch(frames, length, model.head.cross_memory(frames)), 0)


def unpadded(array: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(row[row >= 0].tolist()) for row in array]


class Oracle(Agreement):
    """Everything that the dumps of one model say, searched in batches."""

    def __init__(self, model: WhisperModel, dumps: dict[str, Dump], speech: Path, width: int) -> None:
        super().__init__()
        self.model, self.dumps, self.width = model, dumps, width
        self.options = {name: json.loads(str(dump["options"])) for name, dump in dumps.items()}
        self.samples = {}
        for name, dump in dumps.items():
            samples = read_recording(speech, str(dump["recording"]))
            if hashlib.sha256(samples.astype("<f4").tobytes()).hexdigest() != str(dump["sha256"]):
                raise SystemExit(f"{name}: {dump['recording']} is another recording than the dump's")
            self.samples[name] = samples
        self.encoded = {
            name: encode(model, samples, self.options[name]["pad"]) for name, samples in self.samples.items()
        }

    def numbers(self) -> None:
        for name, dump in self.dumps.items():
            window, prompt = self.encoded[name], dump["prompt"].tolist()
            frames = np.array(window.frames)
            self.gap(
                "encoder, relative", np.abs(frames[::25] - dump["enc_every"]).max() / np.abs(frames).max()
            )
            logits = np.array(self.model.head.logits_after([window], [prompt])[0])
            self.gap("logits", float(np.abs(logits[::16] - dump["first.every"]).max()))
            silence = self.model.no_speech([window], [prompt])[0]
            self.gap("no speech", abs(float(silence) - float(dump["sot.no_speech"])))
            if "languages" in dump:
                shares = self.model.detect_languages([window])[0].probabilities
                gaps = np.abs(np.array(list(shares.values())) - dump["languages"])
                self.gap("languages", float(gaps.max()))
            best = unpadded(dump[f"openai.k{self.options[name]['beams'][-1]}.tokens"])
            chosen = best[int(dump[f"openai.k{self.options[name]['beams'][-1]}.best"])]
            score = self.model.head.score([window], [prompt], [[[*chosen, self.model.ids.eot]]])[0][0]
            self.gap("forced score", abs(float(score) - float(dump["forced.logp"].sum())))

    def searches(self) -> None:
        """All dumps of equal settings in one batch, in a shuffled order."""
        groups: dict[BeamSettings, list[tuple[str, int]]] = {}
        for name, options in self.options.items():
            for beam in [0, *options["beams"]]:
                settings = BeamSettings(
                    max(beam, 1),
                    options["patience"] if beam else 1.0,
                    options["length_penalty"] if beam else None,
                    options["most"],
                )
                groups.setdefault(settings, []).append((name, beam))
        for settings, members in groups.items():
            order = np.random.default_rng(0).permutation(len(members)).tolist()
            search = AttentionSearch(self.model.head, self.model.rules, settings, self.width)
            requests = [
                SearchRequest(
                    members[index],
                    self.encoded[members[index][0]],
                    tuple(self.dumps[members[index][0]]["prompt"].tolist()),
                    WhisperOptions(self.options[members[index][0]]["timestamps"]),
                )
                for index in order
            ]
            for answer in search.run(requests):
                name, beam = cast("tuple[str, int]", answer.key)
                self.compare(name, beam, answer.hypotheses)

    def compare(self, name: str, beam: int, hypotheses: tuple[ScoredTokens, ...]) -> None:
        dump = self.dumps[name]
        if beam == 0:
            same = hypotheses[0].tokens == tuple(dump["greedy.tokens"].tolist())
            self.note("greedy", same, name)
            if same:
                self.gap("score", abs(hypotheses[0].score - float(dump["greedy.score"])))
            return
        expected_lists = unpadded(dump[f"openai.k{beam}.tokens"])
        scores, ended = dump[f"openai.k{beam}.score"], dump[f"openai.k{beam}.ended"]
        expected = {tokens: (float(scores[i]), bool(ended[i])) for i, tokens in enumerate(expected_lists)}
        found = {each.tokens: each for each in hypotheses}
        best = expected_lists[int(dump[f"openai.k{beam}.best"])]
        same = (
            len(found) == len(hypotheses)
            and found.keys() == expected.keys()
            and hypotheses[0].tokens == best
            and all(found[tokens].ended == expected[tokens][1] for tokens in found)
        )
        self.note("n-best lists", same, f"{name} beam {beam}")
        if same:
            for tokens, (score, _) in expected.items():
                self.gap("score", abs(found[tokens].score - score))

    def times(self) -> None:
        names = [name for name, dump in self.dumps.items() if "align.tokens" in dump]
        languages = [self.options[name]["language"] or "en" for name in names]
        answers = align_tokens(
            self.model.head,
            [self.encoded[name] for name in names],
            [self.model.ids.prompt(language, timestamps=False) for language in languages],
            [self.dumps[name]["align.tokens"].tolist() for name in names],
            self.model.frame_seconds,
        )
        for name, answer in zip(names, answers, strict=True):
            dump = self.dumps[name]
            starts = np.zeros(0) if answer is None else answer.starts
            expected = dump["align.starts"]
            same = starts.shape == expected.shape and bool(np.abs(starts - expected).max() < 1e-4)
            self.note("word times", same, name)
            spans = self.model.tokenizer.words(dump["align.tokens"].tolist())
            words = [word["text"] for word in json.loads(str(dump["words"]))]
            self.note("words", [span.text for span in spans] == [word for word in words if word], name)
            if answer is not None:
                self.gap("probabilities", float(np.abs(answer.probabilities - dump["ct2.align.probs"]).max()))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--dumps", type=Path, required=True)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--width", type=int, default=32, help="utterances searched at a time")
    options = types.SimpleNamespace(**vars(parser.parse_args(arguments)))
    dumps = {path.stem: dict(np.load(path)) for path in sorted(options.dumps.glob("*.npz"))}
    failed = not dumps
    for name in sorted({str(dump["model"]) for dump in dumps.values()}):
        own = {key: dump for key, dump in dumps.items() if str(dump["model"]) == name}
        oracle = Oracle(load_whisper(options.models / name), own, options.speech, options.width)
        oracle.numbers()
        oracle.searches()
        oracle.times()
        print(f"{name}, {len(own)} dumps, batches of up to {options.width}: {oracle}")
        failed |= oracle.fails({**dict.fromkeys(oracle.gaps, math.inf), "score": SCORE_TOLERANCE})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
