"""Makes `wenet/`: small WeNet models and what WeNet itself answered for two recordings each.

    python -m tests.golden.make_wenet DUMPS

DUMPS holds folders NAME (`final.pt`, `train.yaml`, `units.txt`) and NAME.npz, as `ops.accuracy.wenet.oracle`
reads them. Two are kept: symmetric with batch norm and one decoder, and causal with two decoders and RNN-T.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).with_name("wenet")
MODELS = ("offline", "rnnt")
CHUNKED = ("chunk4.left2", "chunk7.left1")
ANSWERS = ("search", "transducer", "blank_penalty")
UTTERANCES = (2, 0)  # the shortest and the middle one


def main(folder: str) -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    for name in MODELS:
        source, target = Path(folder) / name, OUT / name
        target.mkdir(parents=True)
        for file in ("train.yaml", "units.txt", "final.pt"):
            shutil.copyfile(source / file, target / file)
        dump = np.load(Path(folder) / f"{name}.npz")
        key = next(each for each in dump.files if each != "notes" and dump[each].dtype.kind == "U")
        answers = json.loads(str(dump[key]))
        made = {"answers": np.array(json.dumps(_kept(answers), ensure_ascii=False))}
        for index, row in enumerate(UTTERANCES):
            chunked = [f"encoder.{each}" for each in CHUNKED if f"u{row}.encoder.{each}" in dump]
            for part in ("wav", "feats", "encoder", "ctc", *chunked):
                made[f"u{index}.{part}"] = dump[f"u{row}.{part}"]
        np.savez_compressed(OUT / f"{name}.npz", **made)
    size = sum(path.stat().st_size for path in OUT.rglob("*") if path.is_file())
    print(f"{OUT}: {size} bytes")


def _kept(answers: dict[str, Any]) -> dict[str, Any]:
    kept = []
    for row in UTTERANCES:
        utterance = answers["utterances"][row]
        kept.append({name: utterance[name] for name in ANSWERS if name in utterance})
        # Random weights say a label 64 times a frame where they may, which takes half a minute.
        kept[-1].get("transducer", {}).get("greedy", {}).pop("64", None)
    return {"utterances": kept}


if __name__ == "__main__":
    main(sys.argv[1])
