"""Counts the n-best lists that equal NeMo's, for the table of docs/numerics.md.

    python -m tests.golden.beam_parity [FOLDER]

Without an argument, the lists of this folder; with one, those that `make_beams.py FOLDER RECORDING…` wrote.
All utterances go through a search as one padded batch; NeMo took them one at a time.
"""

import sys
from pathlib import Path
from typing import Any

from worker.machine import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 -- the BLAS is bound when MLX is loaded

from spool.domain import Hypothesis  # noqa: E402
from tests.golden.parity import HERE, Golden, load, same  # noqa: E402
from worker.decode.search import search  # noqa: E402
from worker.models import DecodeRequest, EncodedFrames, SearchOptions, load_model  # noqa: E402  # noqa: E402

MODELS = ("tdt", "rnnt", "hybrid", "causal", "ctc")
BEAMS = (1, 2, 4, 8, 16)
ARPA = str(HERE / "lm.arpa")
BETA = 1.5
LM = DecodeRequest(language_model=ARPA)
KINDS: dict[
    str, tuple[str, str, DecodeRequest | None, dict[str, Any]]
] = {  # the search's name, how its keys go on after the beam's width, whether an LM is fused, its options
    "beam": ("malsd", "", None, {}),
    "beam, LM": ("malsd", ".lm.plain", LM, {}),
    "beam, LM also on blanks": ("malsd", ".lm.weighted", LM, {"lm_blanks": True}),
    "beam, LM early": ("malsd", ".lm.early", LM, {"pruning": "early"}),
    "beam, LM early and on blanks": (
        "malsd",
        ".lm.early.weighted",
        LM,
        {"lm_blanks": True, "pruning": "early"},
    ),
    "CTC beam": ("ctc_beam", "", None, {}),
    "CTC beam, LM": ("ctc_beam", ".lm", LM, {}),
    f"CTC beam, {BETA} a token": ("ctc_beam", ".beta", None, {"beta": BETA}),
    f"CTC beam, LM, {BETA} a token": ("ctc_beam", ".lm.beta", LM, {"beta": BETA}),
}


def equal(rows: list[Hypothesis], golden: Golden, key: str, b: int) -> bool:
    count = int(golden[f"{key}.n"][b])
    return len(rows) == count and all(same(one, golden, key, b, k) for k, one in enumerate(rows))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    print(f"| model | search | {' | '.join(f'K = {beam}' for beam in BEAMS)} | scores |")
    print("|---" * (len(BEAMS) + 3) + "|")
    hits = total = 0
    for name in MODELS:
        if folder is not None and not (folder / f"{name}.beams.npz").exists():
            continue
        golden = dict(load((folder or HERE) / f"{name}.beams.npz"))
        if folder is None:
            golden |= load(HERE / f"{name}.npz")
        model = load_model(HERE / f"{name}.nemo", mx.float32)
        encoded = EncodedFrames(mx.array(golden["encoder"]), golden["encoder_len"])
        for kind, (search_name, tail, ask, more) in KINDS.items():
            keys = {beam: f"{search_name}.k{beam}{tail}" for beam in BEAMS}
            if f"{keys[1]}.n" not in golden:
                continue
            head = "ctc" if search_name == "ctc_beam" else "auto"
            cells, gap = [], 0.0
            for beam, key in keys.items():
                options = SearchOptions(decoder="beam", beam=beam, nbest=beam, head=head, **more)
                asks = None if ask is None else [ask] * len(encoded.lengths)
                found = search(model, encoded, options, asks)
                good = [b for b, rows in enumerate(found) if equal(rows, golden, key, b)]
                for b in good:
                    scores = golden[f"{key}.score"][b]
                    gap = max(gap, *(abs(one.score - scores[k]) for k, one in enumerate(found[b])))
                cells.append(f"{len(good)} of {len(found)}")
                hits, total = hits + len(good), total + len(found)
            print(f"| {name} | {kind} | {' | '.join(cells)} | {gap:.1e} |", flush=True)
    print(f"\n{hits} of {total} lists are equal.")


if __name__ == "__main__":
    main()
