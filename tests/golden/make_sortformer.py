"""Copies what the tests of Sortformer need from NeMo's dumps of small random models:

    python tests/golden/make_sortformer.py DUMPS

DUMPS is a folder with `families/NAME.nemo` and `dumps/NAME.npz`: three models shaped as NVIDIA's (encoder of
2 x 32, transformer of 2 x 24, four speakers), and who speaks in two recordings by NeMo 3.0.0 with its ties
in the cache broken by the lowest index. The recordings are `audio.npz` in the order of `TALK`, and its first.
`sortformer_v1` takes a recording at once, `sortformer_v21` follows it, `sortformer_normal` follows features
that were normalised over the recording. The archives are compressed; a traced compression keeps what it saw.
"""

import sys
import tarfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
NAMES = ("sortformer_v1", "sortformer_v21", "sortformer_normal")
TALK = (0, 1, 2, 3, 4, 2, 4, 1, 3, 0)
KEPT = ("settings", "post", "preds", "stream", "segments", "trace", "cache", "fifo")


def main() -> None:
    dumps = Path(sys.argv[1])
    answers = {}
    for name in NAMES:
        source = np.load(dumps / "dumps" / f"{name}.npz")
        for key in source.files:
            if key.partition(".")[0] in KEPT:
                answers[f"{name}/{key}"] = source[key]
        with (
            tarfile.open(dumps / "families" / f"{name}.nemo") as plain,
            tarfile.open(HERE / "sortformer" / f"{name}.nemo", "w:xz", preset=9) as packed,
        ):
            for member in plain.getmembers():
                if member.isfile():
                    packed.addfile(member, plain.extractfile(member))
    np.savez_compressed(HERE / "sortformer" / "answers.npz", **answers)


if __name__ == "__main__":
    main()
