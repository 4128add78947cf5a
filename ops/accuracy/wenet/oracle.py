"""Compares the WeNet family with WeNet's own answers.

    python -m ops.accuracy.wenet.oracle --dumps FOLDER [--from features|audio]

For each model FOLDER holds its folder NAME and its answers NAME.npz: recordings, features, encoder frames and
CTC log-probabilities of each utterance and, as JSON, its greedy tokens, n-best lists with times, both
decoders' sums, rescoring, attention beams and transducer beams. Everything runs as in production, all
utterances of a model as one batch. `--from features` leaves out what the front end computes differently in 32
bits. Prints a line for each kind and model; exits with 1 if a list differs or a number is outside its
tolerance.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from ops.accuracy.agreement import Agreement
from worker.machine.blas import preload_blas

preload_blas()

import numpy as np  # noqa: E402 - behind OpenBLAS

from spool.domain.recognition import Hypothesis  # noqa: E402
from worker.decode.search import search  # noqa: E402
from worker.models.front_ends.filter_bank import pad_features  # noqa: E402
from worker.models.requests import SearchOptions  # noqa: E402
from worker.models.wenet.load import load_wenet  # noqa: E402
from worker.models.wenet.model import WenetModel  # noqa: E402

TOLERANCES = {
    "features": 0.1,
    "encoder": 1e-4,
    "ctc": 1e-4,
    "prefix score": 1e-4,
    "decoders": 1e-3,
    "rescoring score": 1e-3,
    "attention score": 1e-3,
    "transducer score": 1e-3,
}
"""The oracle computed features in 32 bit, which costs up to 0.06 near silence; all else from its own."""


class Oracle(Agreement):
    """The answers for one model."""

    def __init__(self, model: WenetModel, dump: Any, start: str) -> None:  # noqa: ANN401 - an npz
        super().__init__()
        self.model, self.dump, self.start = model, dump, start
        key = next(name for name in dump.files if name != "notes" and dump[name].dtype.kind == "U")
        self.utterances = json.loads(str(dump[key]))["utterances"]
        count = range(len(self.utterances))
        audio = [dump[f"u{i}.wav"].astype(np.float32) / 32768 for i in count]
        features = [dump[f"u{i}.feats"] for i in count]
        own, theirs = model.features(audio), pad_features(features)
        self.gap("features", float(np.abs(np.array(own[0]) - np.array(theirs[0])).max()))
        self.encoded = model.encode_features(*(theirs if start == "features" else own))

    def run(self) -> None:
        """Every comparison there is an answer for."""
        if self.start == "features":
            self.numbers()
        self.greedy()
        self.prefix_lists()
        if self.model.config.decoders:
            self.rescoring()
            self.attention()
        if self.model.config.transducer is not None:
            self.transducer()

    def numbers(self) -> None:
        for row, length in enumerate(self.encoded.lengths.tolist()):
            frames = self.encoded.frames[row, :length]
            self.gap("encoder", float(np.abs(np.array(frames) - self.dump[f"u{row}.encoder"]).max()))
            log_probs = np.array(self.model.heads["ctc"].log_probs(frames))
            blank_first = np.concatenate([log_probs[:, -1:], log_probs[:, 1:-1]], axis=1)
            self.gap("ctc", float(np.abs(blank_first - self.dump[f"u{row}.ctc"]).max()))

    def found(self, **options: Any) -> list[list[Hypothesis]]:  # noqa: ANN401
        return search(self.model, self.encoded, SearchOptions(**options))

    def greedy(self) -> None:
        for found, told in zip(self.found(head="ctc"), self.utterances, strict=True):
            self.note("greedy", list(found[0].tokens) == told["search"]["greedy"])

    def prefix_lists(self) -> None:
        for beam in self.utterances[0]["search"]["prefix"]:
            lists = self.found(decoder="beam", head="ctc", beam=int(beam), nbest=int(beam))
            for found, told in zip(lists, self.utterances, strict=True):
                expected = told["search"]["prefix"][beam]
                same = [list(each.tokens) for each in found] == [each["tokens"] for each in expected]
                times = [list(each.times) for each in found] == [each["times"] for each in expected]
                self.note("n-best lists", same)
                self.note("n-best times", times)
                for ours, theirs in zip(found, expected, strict=False) if same else ():
                    self.gap("prefix score", abs(ours.score - theirs["score"]))
        self.blank_penalty()
        head = self.model.heads.get("ctc+attention")
        nbest = [[each["tokens"] for each in told["search"]["prefix"]["10"]] for told in self.utterances]
        for name, reverse in (("left_to_right", False), ("right_to_left", True)):
            if head is None or (reverse and head.right is None) or self.start != "features":
                continue
            sums = head.score(self.encoded.frames, self.encoded.lengths, nbest, reverse=reverse)
            for ours, told in zip(sums, self.utterances, strict=True):
                theirs = [each[name] for each in told["search"]["prefix"]["10"]]
                self.gap("decoders", float(np.abs(ours - np.array(theirs)).max()))

    def blank_penalty(self) -> None:
        """Answers there are of some utterances alone."""
        for row, told in enumerate(self.utterances):
            if "blank_penalty" not in told:
                continue
            case = told["blank_penalty"]
            options = {"head": "ctc", "blank_penalty": case["penalty"]}
            self.note("penalised greedy", list(self.found(**options)[row][0].tokens) == case["greedy"])
            for beam, expected in case["prefix"].items():
                width = {"beam": int(beam), "nbest": int(beam)}
                found = self.found(decoder="beam", **options, **width)[row]
                same = [list(each.tokens) for each in found] == [each["tokens"] for each in expected]
                self.note("penalised lists", same)
                for ours, theirs in zip(found, expected, strict=False) if same else ():
                    self.gap("prefix score", abs(ours.score - theirs["score"]))

    def rescoring(self) -> None:
        for index, case in enumerate(self.utterances[0]["search"]["rescore"]):
            weights = {name: case[name] for name in ("ctc_weight", "reverse_weight")}
            if weights["reverse_weight"] > 0 and len(self.model.config.decoders) < 2:
                continue
            lists = self.found(decoder="rescore", head="ctc", beam=10, nbest=10, **weights)
            for found, told in zip(lists, self.utterances, strict=True):
                theirs = told["search"]["rescore"][index]
                same = list(found[0].tokens) == theirs["tokens"]
                self.note("rescoring", same)
                if same:
                    self.gap("rescoring score", abs(found[0].score - theirs["score"]))

    def attention(self) -> None:
        for index, case in enumerate(self.utterances[0]["search"]["attention"]):
            penalty = case["length_penalty"]
            lists = self.found(
                decoder="attention", head="ctc", beam=case["beam"], nbest=1, length_penalty=penalty
            )
            for row, (found, told) in enumerate(zip(lists, self.utterances, strict=True)):
                theirs = told["search"]["attention"][index]
                same = list(found[0].tokens) == theirs["tokens"]
                self.note("attention", same)
                # One that never ended has no end in its sum, the oracle's has.
                if same and len(found[0].tokens) < self.encoded.lengths[row]:
                    self.gap("attention score", abs(found[0].score - theirs["left_to_right"]))

    def transducer(self) -> None:
        for symbols in self.utterances[0]["transducer"]["greedy"]:
            lists = self.found(head="rnnt", max_symbols=int(symbols))
            for found, told in zip(lists, self.utterances, strict=True):
                theirs = told["transducer"]["greedy"][symbols]
                self.note("transducer greedy", list(found[0].tokens) == theirs)
        for case in self.utterances[0]["transducer"]["beam"]:
            beam, weight, _ = case.split(",")
            options = {"beam": int(beam), "nbest": int(beam), "ctc_weight": float(weight)}
            lists = self.found(decoder="beam", head="rnnt", **options)
            for found, told in zip(lists, self.utterances, strict=True):
                expected = told["transducer"]["beam"][case]
                same = [list(each.tokens) for each in found] == [each["tokens"] for each in expected]
                self.note("transducer lists", same)
                for ours, theirs in zip(found, expected, strict=False) if same else ():
                    self.gap("transducer score", abs(ours.score - theirs["score"]))


def main(arguments: list[str] | None = None) -> int:
    """Every model of a folder of dumps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dumps", type=Path, required=True)
    parser.add_argument("--from", dest="start", choices=("features", "audio"), default="features")
    options = parser.parse_args(arguments)
    paths = [path for path in sorted(options.dumps.glob("*.npz")) if path.with_suffix("").is_dir()]
    failed = not paths
    for path in paths:
        oracle = Oracle(load_wenet(path.with_suffix(""), path.stem), np.load(path), options.start)
        oracle.run()
        print(f"{path.stem}: {oracle}", flush=True)
        failed |= oracle.fails(
            TOLERANCES if options.start == "features" else dict.fromkeys(oracle.gaps, math.inf)
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
