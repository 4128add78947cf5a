"""Makes `wfst.npz`: decoding graphs and what Kaldi's decoders and WeNet's runtime answered over them.

    python -m tests.golden.make_wfst DUMPS

DUMPS holds wfst.npz (graphs, lexicons, ARPA texts, kaldi-decoder's answers) and runtime.npz (a graph and
WeNet's runtime). Kept are two utterances of each of the three graphs with their lattices of both widths, and
of the runtime's lists half, those with phrases left out.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).with_name("wfst.npz")
UTTERANCES = 2
GRAPH = ("first", "emitting", "ilabel", "olabel", "next", "weight", "final", "start")


def main(folder: str) -> None:
    arrays: dict[str, Any] = {}
    answers: dict[str, Any] = {"graphs": [], "runtime": []}
    kaldi = np.load(Path(folder) / "wfst.npz")
    for note in json.loads(str(kaldi["notes"])):
        name = note["name"]
        arrays |= {f"{name}.{key}": kaldi[f"{name}.graph.{key}"] for key in GRAPH}
        for index in range(UTTERANCES):
            arrays[f"{name}.{index}"] = kaldi[f"{name}.{index}.log_probs"]
        kept = {key: note[key] for key in ("name", "kind", "units", "lexicon", "word_names", "arpa", "fast")}
        answers["graphs"].append(kept | {"cases": note["cases"][:UTTERANCES]})
    runtime = np.load(Path(folder) / "runtime.npz")
    key = next(each for each in runtime.files if runtime[each].dtype.kind == "U")
    told = json.loads(str(runtime[key]))
    arrays |= {f"runtime.{name}": runtime[f"graph.{name}"] for name in GRAPH}
    lists = [each for each in told["cases"] if each["kind"] == "wfst" and not each["phrases"]]
    for case in lists[::2]:
        arrays[f"runtime.{case['name']}"] = runtime[case["name"]]
        fields = (
            "name",
            "beam",
            "lattice_beam",
            "max_active",
            "blank_skip",
            "length_penalty",
            "nbest",
            "hyps",
        )
        answers["runtime"].append({field: case[field] for field in fields})
    arrays["answers"] = np.array(json.dumps(answers, ensure_ascii=False))
    np.savez_compressed(OUT, **arrays)
    print(f"{OUT}: {OUT.stat().st_size} bytes, {len(answers['runtime'])} lists of the runtime")


if __name__ == "__main__":
    main(sys.argv[1])
