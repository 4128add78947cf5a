"""Makes `whisper_align.npz`: attention matrices of real recordings and the starts that OpenAI's warping gave.

    python -m tests.golden.make_whisper DUMPS

DUMPS holds .npz files of openai-whisper's answers with `align.matrix` [rows, frames] and `align.starts`.
"""

import sys
from pathlib import Path

import numpy as np

OUT = Path(__file__).with_name("whisper_align.npz")
FRAMES_MAX = 400  # small files only


def main(folder: str) -> None:
    kept: dict[str, np.ndarray] = {}
    for path in sorted(Path(folder).glob("*.npz")):
        dump = np.load(path)
        if "align.matrix" in dump and dump["align.matrix"].shape[1] <= FRAMES_MAX:
            index = len(kept) // 2
            # float16 would change ties; the matrices are kept as they were.
            kept[f"matrix.{index}"] = dump["align.matrix"].astype(np.float32)
            kept[f"starts.{index}"] = dump["align.starts"]
    np.savez_compressed(OUT, allow_pickle=True, **kept)
    print(f"{OUT}: {len(kept) // 2} recordings, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
