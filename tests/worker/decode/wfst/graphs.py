"""A graph for a model's units: random words of one to three units, and a bigram model over them."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spool.graphs import build_graph, save_graph

WORDS = 40


def made_graph(units: Sequence[str], folder: Path, seed: int = 0) -> Path:
    """units: blank first; the second and the last are no letters."""
    rng = random.Random(seed)
    letters = [unit for unit in units[1:] if not unit.startswith("<")]
    lexicon: list[Any] = []
    while len(lexicon) < WORDS:
        spelled = tuple(rng.choices(letters, k=rng.randint(1, 3)))
        if all(spelled != other for _, other in lexicon):
            lexicon.append((f"WORD{chr(65 + len(lexicon) % 26)}{chr(65 + len(lexicon) // 26)}", spelled))
    lexicon.append(("SAME", lexicon[0][1]))
    words = [word for word, _ in lexicon]
    pairs = [(one, other) for one in words for other in rng.sample(words, 4)]
    lines = ["\\data\\", f"ngram 1={len(words) + 2}", f"ngram 2={len(pairs)}", "", "\\1-grams:"]
    lines += ["-99 <s> -0.3", "-1.2 </s>", *(f"{-rng.uniform(1, 2):.4f} {word} -0.3" for word in words)]
    lines += ["", "\\2-grams:", *(f"{-rng.uniform(0.2, 1):.4f} {one} {other}" for one, other in pairs)]
    arpa = folder / "lm.arpa"
    arpa.write_text("\n".join([*lines, "", "\\end\\", ""]))
    return save_graph(build_graph(units, lexicon, arpa), folder / "graph.npz")[0]
