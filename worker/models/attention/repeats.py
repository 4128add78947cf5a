"""Repetitions in a text, cut as Qwen3-ASR's makers cut them (transformers 5.24.0, processing_qwen3_asr.py,
`_detect_and_fix_repetitions`)."""

REPEATS = 20
PATTERN_MAX = 20


def cut_repeats(text: str) -> str:
    """The text with a character that stands more than 20 times in a row once, and then with a pattern of 1 to
    20 characters that stands 20 times or more in a row once."""
    return _cut_patterns(_cut_characters(text))


def _cut_characters(text: str) -> str:
    kept, at = [], 0
    while at < len(text):
        stop = at + 1
        while stop < len(text) and text[stop] == text[at]:
            stop += 1
        kept.append(text[at] if stop - at > REPEATS else text[at:stop])
        at = stop
    return "".join(kept)


def _cut_patterns(text: str) -> str:
    kept, at = [], 0
    while len(text) - at >= 2 * REPEATS:
        size = _pattern_at(text, at)
        if size is None:
            kept.append(text[at])
            at += 1
            continue
        pattern = text[at : at + size]
        kept.append(pattern)
        while text.startswith(pattern, at):
            at += size
    return "".join(kept) + text[at:]


def _pattern_at(text: str, at: int) -> int | None:
    """The length of the shortest pattern that stands 20 times at `at`."""
    for size in range(1, min(PATTERN_MAX, (len(text) - at) // REPEATS) + 1):
        if text.startswith(text[at : at + size] * REPEATS, at):
            return size
    return None
