"""Spool, NeMo and parakeet-mlx side by side: the same weights, the same audio, the same threads, in turns.

    python -m ops.bench.peers SPEECH… [--seconds 300] [--batch 8] [--rounds 3] [--threads 1]

SPEECH: folders with recordings (samples/ by default). Makes the peers' environments and the model in a cache
folder at the first run (some minutes, 3 GB for NeMo). Each engine is a process with its model loaded. Batch
by batch each of them in turn computes features, encoder frames, and greedy, beam 4 and beam 8 over those
frames; of each batch and stage the fastest of the rounds counts. Times are processor seconds of all threads
of a process (a busy machine lengthens them far less than those of the wall, which stand beside), RTFx is
audio seconds over them, and a ratio is of RTFx: above 1 Spool is the faster one. Batches are the same for
all, longest utterances first; parakeet-mlx takes their utterances one by one, for it knows no padding.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ops.bench.peers.child import Seconds, read_utterances, write_utterances
from ops.bench.peers.environment import peer_python
from ops.bench.peers.speech import batches_of, cut_utterances, read_speech
from worker.audio import SAMPLE_RATE
from worker.machine.huge_pages import with_huge_pages

ROOT = Path(__file__).parents[3]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "spool" / "peers"
SEARCHED = ("greedy", "beam 4", "beam 8")
STAGES = ["features", "encoder", *SEARCHED]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SPOOL_KERNEL_THREADS")
ENGINES = {
    "spool": "ops.bench.peers.engine_spool",
    "nemo": "ops.bench.peers.engine_nemo",
    "parakeet-mlx": "ops.bench.peers.engine_parakeet_mlx",
}


class Peer:
    """One engine in its process. searches: those that it has."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        threads: int,
        searches: Sequence[str] = SEARCHED,
    ) -> None:
        environment = os.environ | dict.fromkeys(THREADS, str(threads))
        self.name = name
        self.searches = list(searches)
        self.best: dict[tuple[int, str], Seconds] = {}
        self.tokens: dict[str, dict[int, list[int]]] = {}
        self._process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=with_huge_pages(environment) if name == "spool" else environment,  # as a worker starts it
        )
        self._read()

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._read()

    def run(self, number: int, batch: Sequence[int]) -> None:
        """One batch; its times count where they are the best so far."""
        answer = self.ask({"batch": list(batch), "searches": self.searches})
        for stage, seconds in answer["stages"].items():
            known = self.best.get((number, stage))
            self.best[number, stage] = min(known, tuple(seconds)) if known else tuple(seconds)
        for name, rows in answer["tokens"].items():
            self.tokens.setdefault(name, {}).update(zip(batch, rows, strict=True))

    def seconds(self, *stages: str) -> Seconds:
        """Processor and wall seconds of these stages over all batches."""
        taken = [times for (_, stage), times in self.best.items() if stage in stages]
        return sum(cpu for cpu, _ in taken), sum(wall for _, wall in taken)

    def whole(self, search: str) -> float:
        """Processor seconds from samples to text."""
        return self.seconds("features", "encoder", search)[0]

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {self._process.wait()}; its own message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass
class Target:
    """What is to be reached; `value` None where it was not measured."""

    text: str
    value: float | None
    least: float | None = None
    most: float | None = None
    reached: bool | None = field(init=False)

    def __post_init__(self) -> None:
        known = self.value is not None
        low = known and (self.least is None or self.value >= self.least)  # type: ignore[operator]
        self.reached = (low and (self.most is None or self.value <= self.most)) if known else None  # type: ignore[operator]

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.text:58} not measured"
        bound = f">= {self.least:.2f}" if self.least is not None else f"<= {self.most:.2f}"
        return f"{self.text:58} {self.value:7.3f}  {bound:8} {'reached' if self.reached else 'NOT REACHED'}"


def targets(peers: Mapping[str, Peer]) -> list[Target]:
    """What the engine is to reach, from one run."""
    ours, nemo, mlx = (peers.get(name) for name in ENGINES)
    assert ours is not None

    def ratio(other: Peer | None, search: str) -> float | None:
        return other.whole(search) / ours.whole(search) if other else None

    beam, greedy = ours.whole("beam 8"), ours.whole("greedy")
    return [
        Target("whole engine, beam 8, against NeMo's malsd_batch", ratio(nemo, "beam 8"), least=1.5),
        Target("whole engine, greedy, against NeMo's", ratio(nemo, "greedy"), least=1.3),
        Target("whole engine, beam 8, against parakeet-mlx", ratio(mlx, "beam 8"), least=6.0),
        Target("whole engine, greedy, against parakeet-mlx", ratio(mlx, "greedy"), least=2.0),
        Target("beam 8 end to end, of greedy end to end", beam / greedy, most=1.10),
        Target("search at beam 8, share of the engine's time", ours.seconds("beam 8")[0] / beam, most=0.08),
    ]


def table(peers: Mapping[str, Peer], audio: float) -> list[str]:
    """Stage by stage: processor seconds (wall seconds), RTFx, and how Spool's compares; an engine without a
    search has dots there."""
    searches = peers["spool"].searches
    rows: dict[str, tuple[str, ...]] = {stage: (stage,) for stage in ("features", "encoder", *searches)}
    rows |= {f"whole, {search}": ("features", "encoder", search) for search in searches}
    lines = [f"{'':16}" + "".join(f"{name:>32}" for name in peers)]
    lines.append(f"{'':16}" + f"{'cpu (wall) s    RTFx   ratio':>32}" * len(peers))
    for name, stages in rows.items():
        ours = peers["spool"].seconds(*stages)[0]
        cells = ""
        for peer in peers.values():
            if stages[-1] in searches and stages[-1] not in peer.searches:
                cells += f"{'…':>32}"
                continue
            cpu, wall = peer.seconds(*stages)
            cells += f"{cpu:10.2f} ({wall:7.2f}) {audio / cpu:6.1f} {cpu / ours:6.2f}"
        lines.append(f"{name:16}{cells}")
    return lines


def differences(a: Sequence[int], b: Sequence[int]) -> int:
    """Insertions, deletions and substitutions from one to the other."""
    row = np.arange(len(b) + 1)
    for i, token in enumerate(a, 1):
        swapped = row[:-1] + (np.array(b, dtype=int) != token)
        row = np.concatenate([[i], np.minimum(swapped, row[1:] + 1)])
        # Insertions run along the row.
        row = np.minimum.accumulate(row - np.arange(len(row))) + np.arange(len(row))
    return int(row[-1])


def agreement(name: str, ours: Mapping[int, list[int]], theirs: Mapping[int, list[int]]) -> str:
    """How much of what two engines found is the same."""
    same = sum(ours[i] == theirs[i] for i in theirs)
    edits = sum(differences(ours[i], theirs[i]) for i in theirs)
    tokens = sum(map(len, theirs.values()))
    return f"{name}: {same} of {len(theirs)} utterances the same, {edits} edits in {tokens} tokens"


def measure(peers: Mapping[str, Peer], batches: list[list[int]], rounds: Mapping[str, int]) -> None:
    """Every batch by every peer in turn, so that all meet the same minutes."""
    for turn in range(max(rounds.values())):
        for number, batch in enumerate(batches):
            for name, peer in peers.items():
                if turn < rounds[name]:
                    peer.run(number, batch)
        print(f"round {turn + 1}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


def agreements(peers: Mapping[str, Peer], utterances: list[np.ndarray], scratch: Path) -> list[str]:
    """Greedy tokens against Spool's. parakeet-mlx has other features, so it is given Spool's for this."""
    ours, found = peers["spool"].tokens, []
    if "nemo" in peers:
        found = [agreement(f"NeMo, {name}", ours[name], peers["nemo"].tokens[name]) for name in SEARCHED]
    if "parakeet-mlx" in peers:
        theirs = {}
        for number in _one_of_each_third(len(utterances)):
            path = scratch / "features.npy"
            np.save(path, _features(utterances[number]))
            theirs[number] = peers["parakeet-mlx"].ask({"features": str(path)})["tokens"][0]
        found.append(agreement("parakeet-mlx, greedy, on Spool's features", ours["greedy"], theirs))
    return found


def _one_of_each_third(count: int) -> list[int]:
    return sorted({(a + b) // 2 for a, b in pairwise([0, count // 3, 2 * count // 3, count])})


def _features(samples: np.ndarray) -> np.ndarray:
    from worker.models.conformer.config import PreprocessorConfig  # brings MLX, which only this needs
    from worker.models.front_ends.log_mel import FeatureExtractor

    config = PreprocessorConfig(window_size=0.025, features=80, n_fft=512)
    return np.array(FeatureExtractor(config)(samples))


def prepare(chosen: argparse.Namespace) -> tuple[dict[str, Path], Path, Path]:
    """Interpreters of the peers, the folder of the model and the file of the audio."""
    cache: Path = chosen.cache
    cache.mkdir(parents=True, exist_ok=True)
    given = {"nemo": chosen.nemo_python, "parakeet-mlx": chosen.mlx_python}
    asked = [name for name in ENGINES if name != "spool" and name not in chosen.without]
    pythons = {"spool": Path(sys.executable)}
    pythons |= {name: given[name] or peer_python(name, cache) for name in asked}
    audio = cache / "audio.npz"
    speech = read_speech(chosen.speech or [ROOT / "samples" / "demo-tdt"], chosen.seconds)
    write_utterances(audio, cut_utterances(speech, chosen.seconds))
    model = chosen.model or cache / f"model-{chosen.layers}"
    if not (model / "model.nemo").is_file():
        maker = [
            str(pythons["nemo"]),
            "-m",
            "ops.bench.peers.model",
            str(model),
            str(audio),
            str(chosen.layers),
        ]
        subprocess.run(maker, cwd=ROOT, check=True, stdout=sys.stderr)
    return pythons, model, audio


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("speech", nargs="*", type=Path, help="folders with recordings")
    parser.add_argument("--seconds", type=float, default=300.0, help="of audio")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow-rounds", type=int, default=1, help="of parakeet-mlx, which takes minutes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=17, help="of the encoder that is made")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument(
        "--model", type=Path, help="a folder with model.nemo and mlx/ instead of the one made"
    )
    parser.add_argument("--nemo-python", type=Path, help="an interpreter with NeMo, instead of one made here")
    parser.add_argument("--mlx-python", type=Path, help="an interpreter with parakeet-mlx")
    parser.add_argument("--without", action="append", default=[], choices=["nemo", "parakeet-mlx"])
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse(arguments)
    pythons, model, audio = prepare(chosen)
    utterances = read_utterances(audio)
    weights = {"spool": model / "mlx", "nemo": model / "model.nemo", "parakeet-mlx": model / "mlx"}
    peers = {
        name: Peer(name, [python, "-m", ENGINES[name], weights[name], audio], chosen.threads)
        for name, python in pythons.items()
    }
    rounds = dict.fromkeys(peers, chosen.rounds) | {"parakeet-mlx": chosen.slow_rounds}
    batches = list(batches_of(len(utterances), chosen.batch))
    measure(peers, batches, rounds)
    seconds = sum(map(len, utterances)) / SAMPLE_RATE
    load = os.getloadavg()[0]
    print(f"{len(utterances)} utterances, {seconds:.0f} s, {chosen.threads} threads, load {load:.1f}")
    tokens = sum(map(len, peers["spool"].tokens["greedy"].values()))
    print(f"{tokens / (seconds / 0.08):.2f} tokens a frame\n", *table(peers, seconds), "", sep="\n")
    print(*targets(peers), "", *agreements(peers, utterances, audio.parent), sep="\n")
    for peer in peers.values():
        peer.close()


if __name__ == "__main__":
    main()
