"""The model of `peers.py`, made where NeMo is installed: 114 M random weights that decode as trained ones do.

    python -m ops.bench.peers.model FOLDER AUDIO.npz [LAYERS]

Of the size of parakeet-tdt_ctc-110m: 17 layers of width 512, prediction network 640, 1024 pieces, durations 0
to 4. Weights are NeMo's initial ones of a fixed seed, the joint is centred and scaled and blank's bias
bisected on the audio until greedy search emits 0.3 tokens a frame (as tests/golden/recipes.py does for its
tiny models). Writes `model.nemo` and `mlx/`, the same weights in the layout of mlx-community/parakeet-*.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

import torch  # noqa: E402
from make_golden import write_folder  # noqa: E402
from recipes import Recipe, build, make_tokenizer  # noqa: E402

from ops.bench.peers.child import read_utterances  # noqa: E402

PIECES = 1024
TOKENS_A_FRAME = 0.3
UTTERANCES = 6  # to calibrate on
ENCODER = {
    "d_model": 512,
    "n_heads": 8,
    "ff_expansion_factor": 4,
    "subsampling_conv_channels": 256,
    "xscaling": True,
}


def texts() -> list[str]:
    """Something to make pieces of: the documentation's own words."""
    lines = [
        line for page in sorted(ROOT.glob("**/*.md")) if ".venv" not in page.parts for line in _words(page)
    ]
    return sorted(set(lines))


def _words(page: Path) -> list[str]:
    kept = (c if c.isalpha() or c == "'" else " " for c in page.read_text(encoding="utf-8").lower())
    words = "".join(kept).encode("ascii", "ignore").decode().split()
    return [" ".join(words[at : at + 12]) for at in range(0, len(words), 12)]


def main() -> None:
    folder, audio = Path(sys.argv[1]), read_utterances(Path(sys.argv[2]))
    layers = int(sys.argv[3]) if len(sys.argv) > 3 else 17
    torch.set_num_threads(2)
    recipe = Recipe(
        "peers",
        7,
        "tdt",
        rate=TOKENS_A_FRAME,
        vocabulary=PIECES,
        width=512,
        hidden=640,
        encoder=ENCODER | {"n_layers": layers},
    )
    tokenizer = make_tokenizer(texts(), PIECES, folder / "tokenizer")
    model = build(recipe, tokenizer, audio[:UTTERANCES])
    write_folder(model, tokenizer, folder / "mlx")
    model.save_to(str(folder / "model.nemo"))
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{count / 1e6:.0f} M parameters in {folder}")


if __name__ == "__main__":
    main()
