"""Spool beside transformers on the families of 2026: the same random weights of the published width, the same
audio, the same threads, in turns.

    python -m ops.bench.peers --family granite|cohere|qwen [SPEECH…] [--layers N] [--utterances 8] [--batch 8]

SPEECH: folders with recordings (samples/open by default), cut to utterances of 30 s. Makes transformers'
environment and the model in a cache folder at the first run (some minutes, 2 GB). `--layers`: fewer than
published, where the whole model takes too long; what is printed says so. Of each batch and stage the fastest
of the rounds counts; how times are taken stands in `ops.bench.peers.compare`. transformers is called as its
documentation does, in float32, one padded batch at a time. Weights are random, so texts mean nothing.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.bench.peers.child import write_utterances
from ops.bench.peers.compare import CACHE, ROOT, Peer, Target, agreement, measure, table
from ops.bench.peers.environment import peer_python
from ops.bench.peers.speech import batches_of, cut_utterances, read_speech

SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Family:
    """One family's comparison. layers: of the published encoder. least: by how much Spool is to be faster,
    end to end. searches: those of `ops.bench.peers.child.SEARCHES` that both have. engine: Spool's."""

    layers: int
    least: float
    searches: tuple[str, ...] = ("greedy",)
    engine: str = "ops.bench.peers.engine_spool"


FAMILIES = {
    "granite": Family(layers=16, least=2.0),
    "cohere": Family(48, 1.5, engine="ops.bench.peers.hub.engine_attention"),
    "qwen": Family(18, 1.5, engine="ops.bench.peers.hub.engine_attention"),
}
"""How each is made stands in `make.MAKERS`, how transformers runs it in `engine_transformers.ENGINES`."""


def targets(family: Family, peers: Mapping[str, Peer]) -> list[Target]:
    """What the engine is to reach, from one run."""
    ours, theirs = peers["spool"], peers["transformers"]
    return [
        Target(
            f"whole engine, {search}, against transformers", theirs.whole(search) / ours.whole(search), least
        )
        for search, least in dict.fromkeys(family.searches, family.least).items()
    ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("speech", nargs="*", type=Path, help="folders with recordings")
    parser.add_argument("--layers", type=int, help="of the encoder that is made")
    parser.add_argument("--utterances", type=int, default=8, help="of 30 s")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--python", type=Path, help="an interpreter with transformers, instead of one made")
    return parser.parse_args(arguments)


def make_model(python: Path, family: str, layers: int, cache: Path) -> Path:
    """The folder of a family's random model, made where it is missing by an interpreter with transformers."""
    model = cache / f"{family}-{layers}"
    if not (model / "config.json").is_file():
        maker = [str(python), "-m", "ops.bench.peers.hub.make", family, str(model), str(layers)]
        subprocess.run(maker, cwd=ROOT, check=True, stdout=sys.stderr)
    return model


def prepare(chosen: argparse.Namespace, layers: int) -> tuple[Path, Path, Path]:
    """The interpreter with transformers, the model's folder and the file of the audio."""
    cache: Path = chosen.cache
    cache.mkdir(parents=True, exist_ok=True)
    python = chosen.python or peer_python("transformers", cache)
    model, audio = make_model(python, chosen.family, layers, cache), cache / "half-minutes.npz"
    seconds = SECONDS * chosen.utterances
    speech = read_speech(chosen.speech or [ROOT / "samples" / "open"], seconds)
    write_utterances(audio, cut_utterances(speech, seconds, shortest=SECONDS, longest=SECONDS))
    return python, model, audio


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse(arguments)
    family = FAMILIES[chosen.family]
    layers = chosen.layers or family.layers
    python, model, audio = prepare(chosen, layers)
    commands: dict[str, list[str | Path]] = {
        "spool": [sys.executable, "-m", family.engine, model, audio],
        "transformers": [python, "-m", "ops.bench.peers.hub.engine_transformers", model, audio],
    }
    peers = {name: Peer(name, command, chosen.threads, family.searches) for name, command in commands.items()}
    measure(peers, list(batches_of(chosen.utterances, chosen.batch)), dict.fromkeys(peers, chosen.rounds))
    print(
        f"{chosen.family}: {chosen.utterances} utterances of 30 s, {chosen.batch} a batch, {layers} of "
        f"{family.layers} layers, {chosen.threads} threads, load {os.getloadavg()[0]:.1f}\n"
    )
    print(*table(peers, SECONDS * chosen.utterances), "", *targets(family, peers), "", sep="\n")
    for search in family.searches:
        print(agreement(search, peers["spool"].tokens[search], peers["transformers"].tokens[search]))
    for peer in peers.values():
        peer.close()


if __name__ == "__main__":
    main()
