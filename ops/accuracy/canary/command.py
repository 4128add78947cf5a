"""Compares `spool-worker transcribe` with a Canary, from file to JSON, with NeMo's n-best lists.

    python -m ops.accuracy.canary.command --models FOLDER --dumps FOLDER --audio FOLDER

The folders are those of `ops.accuracy.canary.oracle`. The command runs once for each prompt, beam and length
penalty over the recordings whose lists have them, and once greedily for each prompt. Prompts are given as
NeMo's slots (`--prompt JSON`), beams with `--decoder beam --beam K --nbest K`. Prints a line for each model;
exits with 1 if a list differs in tokens or order or a score is outside its tolerance.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ops.accuracy.agreement import Agreement
from ops.testbed.invoking import invoke
from worker.cli.main import main as spool_worker

SCORES = 5e-3
"""From the audio: the rounding of features and encoder is in each of some hundred tokens."""
KEY = re.compile(r"(?:greedy\.(\d+)\.(\w+)|beam\.(\d+)\.(\w+)\.k(\d+)\.lp([\d.]+)\.tok)")

Dump = dict[str, Any]


class Command(Agreement):
    """One model's lists through the command."""

    def __init__(self, model: Path, dump: Dump, audio: Path) -> None:
        super().__init__()
        self.model, self.dump = model, dump
        self.prompts = json.loads(str(dump["prompts"]))
        self.files = [audio / f"{name}.wav" for name in dump["wavs"]]

    def run(self) -> None:
        """Every list of the dump."""
        groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for match in filter(None, map(KEY.fullmatch, self.dump)):
            row, prompt, beam_row, beam_prompt, beam, penalty = match.groups()
            if row is not None:
                groups[(prompt,)].append(int(row))
            else:
                groups[(beam_prompt, beam, penalty)].append(int(beam_row))
        for group, rows in groups.items():
            for row, answer in zip(rows, self.answers(group, rows), strict=True):
                self.compare(group, row, answer["nbest"])

    def answers(self, group: tuple[str, ...], rows: list[int]) -> list[Any]:
        """The JSON that the command prints for the recordings `rows`. Raises SystemExit where it fails."""
        asked = ["transcribe", *(str(self.files[row]) for row in rows), "--model", str(self.model)]
        asked += ["--no-chunk", "--format", "json", "--prompt", json.dumps(self.prompts[group[0]]["slots"])]
        if len(group) > 1:
            _, beam, penalty = group
            asked += ["--decoder", "beam", "--beam", beam, "--nbest", beam, "--length-penalty", penalty]
        result = invoke(spool_worker, asked)
        if result.exit_code:
            raise SystemExit(f"spool-worker {' '.join(asked)}: {result.stderr}")
        documents: list[Any] = json.loads(result.stdout)
        return documents

    def compare(self, group: tuple[str, ...], row: int, nbest: list[Any]) -> None:
        """The hypotheses of one recording with the dump's."""
        tokens = [each["tokens"] for each in nbest]
        if len(group) == 1:
            key = f"greedy.{row}.{group[0]}"
            self.note("greedy", tokens[0] == self.dump[key].tolist(), key)
            return
        prompt, beam, penalty = group
        base = f"beam.{row}.{prompt}.k{beam}.lp{penalty}"
        theirs = zip(self.dump[f"{base}.tok"], self.dump[f"{base}.len"], strict=True)
        same = tokens == [each[:length].tolist() for each, length in theirs]
        self.note("n-best lists", same, base)
        if same:
            scores = np.array([each["score"] for each in nbest])
            self.gap("scores", float(np.abs(scores - self.dump[f"{base}.score"]).max()))


def main(arguments: list[str] | None = None) -> int:
    """Every model of a folder that has a dump of Canary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--dumps", type=Path, required=True)
    parser.add_argument("--audio", type=Path, required=True)
    options = parser.parse_args(arguments)
    failed, compared = False, 0
    for path in sorted(options.models.glob("*.nemo")):
        dump_path = options.dumps / f"{path.stem}.npz"
        dump = dict(np.load(dump_path)) if dump_path.is_file() else {}
        if "prompts" not in dump:
            continue
        command = Command(path, dump, options.audio)
        command.run()
        compared += 1
        print(f"{path.stem}: {command}", flush=True)
        failed |= command.fails({"scores": SCORES})
    return int(failed or not compared)


if __name__ == "__main__":
    sys.exit(main())
