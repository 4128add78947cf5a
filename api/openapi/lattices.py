"""The examples of lattices in the OpenAPI description. A test checks each against its schema."""

from typing import Any


def _arc(
    source: int, target: int, word: str, start: float, end: float, acoustic: float, share: float
) -> dict[str, Any]:
    return {
        "from": source,
        "to": target,
        "word": word,
        "start": start,
        "end": end,
        "acoustic": acoustic,
        "lm": 0.0,
        "confidence": share,
    }


LATTICE: dict[str, Any] = {
    "start": 0.0,
    "end": 1.9,
    "channel": 0,
    "prune": 5.0,
    "score": -0.845,
    "frame_seconds": 0.08,
    "times": [0.0, 0.48, 0.64, 0.64, 1.2],
    "arcs": [
        _arc(0, 1, "keep", 0.16, 0.48, -0.105, 0.9),
        _arc(1, 2, "the", 0.56, 0.64, -0.221, 0.802),
        _arc(1, 3, "a", 0.56, 0.64, -2.303, 0.1),
        _arc(2, 4, "light", 0.72, 1.2, -0.416, 0.651),
        _arc(3, 4, "light", 0.72, 1.2, -0.416, 0.081),
    ],
    "ends": [{"state": 4, "acoustic": -0.103, "lm": 0.0}],
}

KALDI = (
    "Reel_42-0-0000000-0000190\n"
    "0 1 keep 0,0.105,1_1_1_1_1_1\n"
    "1 2 the 0,0.221,1_1\n"
    "1 3 a 0,2.303,1_1\n"
    "2 4 light 0,0.416,1_1_1_1_1_1_1\n"
    "3 4 light 0,0.416,1_1_1_1_1_1_1\n"
    "4 0,0.103,1_1_1_1_1_1_1_1_1\n"
    "\n"
)
