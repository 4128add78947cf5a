"""Spool's Whisper, faster-whisper, mlx-whisper and openai-whisper side by side: the same weights, the same
windows, the same threads, in turns.

    python -m ops.bench.peers --family whisper [SPEECH…] [--model whisper-base] [--windows 16] [--batch 8]

SPEECH: folders with recordings (samples/open by default). --model: a model in CTranslate2's layout, by its
name in the catalogue or its folder. Makes the peers' environments in a cache folder at the first run. All
compute in float32 and answer once a window of 30 s, in English, without times, greedy and with a beam of 5:
what faster-whisper's batched pipeline does. A job of Spool's asks a window twice and aligns its words; that
is not measured here. Of each batch and stage the fastest of the rounds counts; how times are taken stands in
`ops.bench.peers.compare`.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ops.bench.peers.child import write_utterances
from ops.bench.peers.compare import CACHE, ROOT, Peer, Target, agreement, measure, table
from ops.bench.peers.environment import peer_python
from ops.bench.peers.speech import batches_of, cut_utterances, read_speech
from ops.bench.peers.whisper.layouts import write_layouts
from spool.planning.shapes import WhisperShape
from worker.models.load import model_files
from worker.models.whisper.artifacts import open_folder

SEARCHED = ("greedy", "beam 5")
ENGINES = {
    "spool": "ops.bench.peers.whisper.engine_spool",
    "faster-whisper": "ops.bench.peers.whisper.engine_faster",
    "mlx-whisper": "ops.bench.peers.whisper.engine_mlx",
    "openai-whisper": "ops.bench.peers.whisper.engine_openai",
}
SLOW = ("mlx-whisper", "openai-whisper")
WINDOW_SECONDS = 30.0


def targets(peers: Mapping[str, Peer], encoder_operations: float) -> list[Target]:
    """What the engine is to reach, from one run. encoder_operations: of all windows."""
    ours = peers["spool"]
    product = ours.ask({"product": 5})
    rate = encoder_operations / ours.seconds("encoder")[0]

    def ratio(name: str, search: str) -> float | None:
        return peers[name].whole(search) / ours.whole(search) if name in peers else None

    return [
        Target("whole engine, greedy, against faster-whisper", ratio("faster-whisper", "greedy"), least=1.0),
        Target("whole engine, beam 5, against faster-whisper", ratio("faster-whisper", "beam 5"), least=1.1),
        Target("whole engine, greedy, against mlx-whisper", ratio("mlx-whisper", "greedy"), least=3.5),
        Target(
            "beam 5 end to end, of greedy end to end", ours.whole("beam 5") / ours.whole("greedy"), most=1.2
        ),
        Target(
            "features and encoder with cross memory, of the matrix product",
            rate * product["seconds"] / product["operations"],
            least=0.7,
        ),
    ]


def window_operations(model: Path) -> float:
    """Operations of the encoder and the cross keys and values of one window."""
    dims = open_folder(model).dims
    sizes = (dims.n_mels, dims.n_audio_state, dims.n_audio_layer, dims.n_text_layer, dims.n_vocab)
    shape = WhisperShape(model.name, *sizes)
    return shape.encoder_operations + shape.cross_operations


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("speech", nargs="*", type=Path, help="folders with recordings")
    parser.add_argument(
        "--model", default="whisper-tiny.en", help="of the catalogue, or a folder in CTranslate2's layout"
    )
    parser.add_argument("--windows", type=int, default=16, help="of 30 s")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow-rounds", type=int, default=1, help="of mlx-whisper and openai-whisper")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument(
        "--without", action="append", default=[], choices=[n for n in ENGINES if n != "spool"]
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse(arguments)
    cache: Path = chosen.cache
    cache.mkdir(parents=True, exist_ok=True)
    model = model_files(chosen.model).path
    asked = [name for name in ENGINES if name not in chosen.without]
    pythons = {name: Path(sys.executable) if name == "spool" else peer_python(name, cache) for name in asked}
    folders = write_layouts(model, cache / f"layouts-{model.name}")
    audio = cache / "windows.npz"
    seconds = WINDOW_SECONDS * chosen.windows
    speech = read_speech(chosen.speech or [ROOT / "samples" / "open"], seconds)
    windows = cut_utterances(speech, seconds, shortest=WINDOW_SECONDS, longest=WINDOW_SECONDS)
    write_utterances(audio, windows)
    peers = {
        name: Peer(
            name,
            [pythons[name], "-m", ENGINES[name], folders[name], audio],
            chosen.threads,
            SEARCHED[:1] if name == "mlx-whisper" else SEARCHED,
        )
        for name in asked
    }
    rounds = {name: chosen.slow_rounds if name in SLOW else chosen.rounds for name in peers}
    measure(peers, list(batches_of(len(windows), chosen.batch)), rounds)
    tokens = sum(map(len, peers["spool"].tokens["greedy"].values())) / len(windows)
    print(
        f"{model.name}: {len(windows)} windows of 30 s, {chosen.batch} a batch, {tokens:.0f} tokens a window,"
    )
    print(f"{chosen.threads} threads, load {os.getloadavg()[0]:.1f}\n", *table(peers, seconds), "", sep="\n")
    print(*targets(peers, len(windows) * window_operations(model)), "", sep="\n")
    for name, peer in peers.items():
        if name != "spool":
            for search, theirs in peer.tokens.items():
                print(agreement(f"{name}, {search}", peers["spool"].tokens[search], theirs))
    for peer in peers.values():
        peer.close()


if __name__ == "__main__":
    main()
