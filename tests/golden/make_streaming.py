"""Copies what the tests of attention contexts need from NeMo's dumps of a cache-aware model:

    python tests/golden/make_streaming.py DUMPS

DUMPS is the folder with `audio/`, `families/` and `dumps/` of a model built after
stt_en_fastconformer_hybrid_large_streaming_multi with seeded random weights, and of what NeMo made of it
under each of its contexts. The archive is compressed, the recordings become FLAC, and of the lists beam 8 is
kept.
"""

import sys
import tarfile
from pathlib import Path

import numpy as np
import soundfile

HERE = Path(__file__).parent
NAME, UTTERANCES = "stream_multi", (1, 2)


def main() -> None:
    dumps = Path(sys.argv[1])
    source = np.load(dumps / "dumps" / f"{NAME}.npz")
    kept = {"contexts": source["contexts"]}
    for key in source.files:
        parts = key.split(".")
        if parts[0] not in ("enc", "greedy", "beam", "ctc", "step_frames") or int(parts[2]) not in UTTERANCES:
            continue
        if parts[0] != "beam" or parts[3] == "k8":
            kept[key] = source[key]
    for number in UTTERANCES:
        audio, rate = soundfile.read(dumps / "audio" / f"{source['wavs'][number]}.wav", dtype="int16")
        soundfile.write(HERE / "streaming" / f"{number}.flac", audio, rate)
    np.savez_compressed(HERE / "streaming" / "answers.npz", **kept)
    with (
        tarfile.open(dumps / "families" / f"{NAME}.nemo") as plain,
        tarfile.open(HERE / "streaming" / "model.nemo", "w:xz", preset=9) as packed,
    ):
        for member in plain.getmembers():
            if member.isfile():
                packed.addfile(member, plain.extractfile(member))


if __name__ == "__main__":
    main()
