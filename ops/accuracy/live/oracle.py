"""Compares live sessions with NeMo's answers for the whole recordings.

    python -m ops.accuracy.live.oracle FOLDER NAME…

FOLDER holds `audio/*.wav`, `families/NAME.nemo` and `dumps/NAME.npz` of cache-aware models. For each
attention context a dump has the encoder's frames of the whole recording, how many each step gave, the frames
and caches of some steps, the greedy path, CTC tokens and the beams' n-best lists. All recordings of a model
are sessions of one group, opened a second apart and sent in blocks of changing length. Prints a line for each
model and context; exits with 1 if a list differs or a number is outside its tolerance.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 - behind OpenBLAS
import numpy as np  # noqa: E402
import soundfile  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from ops.accuracy.agreement import Agreement  # noqa: E402
from spool.domain.recognition import Hypothesis  # noqa: E402
from worker.live.endpoint import EndpointRules  # noqa: E402
from worker.live.events import End, Final  # noqa: E402
from worker.live.group import LiveGroup  # noqa: E402
from worker.live.session import LiveOptions, LiveSession  # noqa: E402
from worker.models.load import load_model  # noqa: E402
from worker.models.nemo.model import NemoModel  # noqa: E402
from worker.models.requests import SearchOptions  # noqa: E402

BLOCKS = (1280, 517, 8000, 3200)
BETWEEN = 16_000
"""Samples that every session hears before the next one is opened."""
TOLERANCES = {"frames": 1e-5, "whole": 1e-5, "keys and values": 1e-5, "convolution": 1e-5, "scores": 2e-3}
RULES = EndpointRules(silence=0.3, longest=3.0)
"""Endpoints at every turn: they must change no token."""

Context = tuple[int, int]
Samples = NDArray[np.float32]


class Oracle(Agreement):
    """The answers for one model under one context."""

    def __init__(self, model: NemoModel, dump: Any, context: Context, audio: list[Samples]) -> None:  # noqa: ANN401 - an npz
        super().__init__()
        self.model, self.dump, self.context, self.audio = model, dump, context, audio

    def key(self, kind: str, utterance: int) -> str:
        return f"{kind}.{self.context[1]}.{utterance}"

    def check_steps(self) -> None:
        """Frames of every step, and the caches of those that were kept."""
        for utterance, samples in enumerate(self.audio):
            stream, given = self.model.open_stream(self.context), []
            for block in _blocks(samples, utterance):
                stream.push(block)
                while stream.is_ready:
                    given.append(np.array(self.model.step([stream])[0]))
                    self._check_caches(utterance, len(given) - 1, stream)
            stream.finish()
            while stream.is_ready:
                given.append(np.array(self.model.step([stream])[0]))
                self._check_caches(utterance, len(given) - 1, stream)
            counts = self.dump[self.key("step_frames", utterance)].tolist()
            self.note("steps", [len(each) for each in given] == counts)
            expected, frames = self.dump[self.key("enc", utterance)], np.concatenate(given)
            self.gap("frames", float(np.abs(frames - expected).max() / np.abs(expected).max()))
            whole = np.array(self.model.encode([samples], self.context).frames[0])
            self.gap("whole", float(np.abs(frames - whole).max()))

    def _check_caches(self, utterance: int, step: int, stream: Any) -> None:  # noqa: ANN401
        channel, key = f"cache_channel.{self.context[1]}.{step}", f"cache_len.{self.context[1]}.{step}"
        if utterance or stream.has_ended or key not in self.dump:
            return
        filled = int(self.dump[key][0])
        self.note("filled", filled == stream.past.filled)
        if channel not in self.dump or not filled:
            return
        layers = zip(
            stream.past.layers,
            self.model.network.encoder.layers,
            self.dump[channel],
            self.dump[f"cache_time.{self.context[1]}.{step}"],
            strict=True,
        )
        for past, layer, normed, gated in layers:
            attention, heard = layer.self_attn, mx.array(normed[None, -filled:])
            for kept, linear in (
                (past.attention.keys, attention.linear_k),
                (past.attention.values, attention.linear_v),
            ):
                expected = np.array(attention._split(linear(heard)))
                self.gap("keys and values", float(np.abs(np.array(kept)[:, :, -filled:] - expected).max()))
            self.gap("convolution", float(np.abs(np.array(past.gated)[0] - gated.T).max()))

    def check_search(self, beam: int | None, head: str = "rnnt") -> None:
        """Sessions side by side: what they give, and the whole hypotheses at their ends."""
        options = SearchOptions(head=head, att_context=self.context)
        if beam is not None:
            options = SearchOptions(
                decoder="beam", beam=beam, nbest=beam, head="rnnt", att_context=self.context
            )
        group = LiveGroup(self.model, LiveOptions(options, RULES, keeps=True))
        events = _run(group, self.audio)
        for utterance in range(len(self.audio)):
            finals = [event for event in events[utterance] if isinstance(event, Final)]
            [end] = [event for event in events[utterance] if isinstance(event, End)]
            tokens = [token for final in finals for token in final.tokens]
            times = [time for final in finals for time in final.times]
            if head == "ctc":
                self.note("ctc", tokens == self.dump[self.key("ctc", utterance)].tolist())
                continue
            if beam is None:
                expected = [
                    self.dump[f"{self.key('greedy', utterance)}.{each}"].tolist() for each in ("tok", "time")
                ]
                self.note("greedy", [tokens, times] == expected)
                continue
            lists = self._lists(utterance, beam)
            self.note(f"beam {beam}", [each[:2] for each in lists] == _shown(end.nbest))
            self.note("finals", (tuple(tokens), tuple(times)) == lists[0][:2])
            scores = [abs(a.score - b[2]) for a, b in zip(end.nbest, lists, strict=False)]
            self.gap("scores", max(scores, default=0.0))

    def _lists(self, utterance: int, beam: int) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
        key = f"{self.key('beam', utterance)}.k{beam}"
        columns = {name: self.dump[f"{key}.{name}"] for name in ("tok", "time", "len", "score")}
        return [
            (
                tuple(columns["tok"][rank][: columns["len"][rank]].tolist()),
                tuple(columns["time"][rank][: columns["len"][rank]].tolist()),
                float(columns["score"][rank]),
            )
            for rank in range(int(self.dump[f"{key}.n"]))
        ]


def _shown(hypotheses: Sequence[Hypothesis]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(each.tokens, each.times) for each in hypotheses]


def _blocks(samples: Samples, shift: int) -> Iterator[Samples]:
    at, index = 0, shift
    while at < len(samples):
        size = BLOCKS[index % len(BLOCKS)]
        yield samples[at : at + size]
        at, index = at + size, index + 1


def _run(group: LiveGroup, audio: Sequence[Samples]) -> list[list[Any]]:
    """The events of each recording's session; all together, each later than the one before."""
    opened: list[tuple[LiveSession, Iterator[Samples]]] = []
    events: list[list[Any]] = [[] for _ in audio]
    finished: set[int] = set()
    heard = 0
    while len(finished) < len(audio):
        if len(opened) < len(audio) and heard >= BETWEEN * len(opened):
            opened.append((group.open(), _blocks(audio[len(opened)], len(opened))))
        for index, (session, blocks) in enumerate(opened):
            block = next(blocks, None)
            if block is not None:
                session.push(block)
                heard += len(block) if index == 0 else 0
            elif index not in finished:
                session.finish()
                finished.add(index)
                heard += BETWEEN if index == 0 else 0
        while group.is_ready:
            for result in group.step():
                index = next(at for at, (session, _) in enumerate(opened) if session is result.session)
                events[index] += result.events
    return events


def main() -> None:
    """Check every model and context that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    given = parser.parse_args()
    good = True
    for name in given.names:
        model = load_model(given.folder / "families" / f"{name}.nemo")
        assert isinstance(model, NemoModel)
        dump = np.load(given.folder / "dumps" / f"{name}.npz")
        audio = [
            soundfile.read(given.folder / "audio" / f"{wav}.wav", dtype="float32")[0] for wav in dump["wavs"]
        ]
        for left, right in json.loads(str(dump["contexts"])):
            oracle = Oracle(model, dump, (left, right), audio)
            oracle.check_steps()
            for beam in (None, 4, 8):
                oracle.check_search(beam)
            if "ctc" in model.heads:
                oracle.check_search(None, "ctc")
            print(f"{name} {left},{right}: {oracle}")
            good &= not oracle.fails(TOLERANCES)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
