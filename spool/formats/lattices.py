"""The lattices of a transcript: as JSON, and as a Kaldi text archive.

The archive is what Kaldi's `lattice-copy ark:… ark,t:-` prints of compact lattices, with words instead of
their numbers (`utils/sym2int.pl -f 3 words.txt` converts them back): one line with the utterance's name, one
per arc (`from to word graph,acoustic,frames`), one per final state, an empty line. Costs are negated natural
logarithms; `frames` has a 1 for each encoder frame, so that Kaldi's tools find the times.
"""

import json
import re
from collections.abc import Iterator

from spool.domain.transcript import Lattice, Transcript
from spool.errors import NotFound

EPSILON = "<eps>"
_UNSAFE = re.compile(r"\s+")


def lattice(transcript: Transcript) -> str:
    """A JSON array, one lattice per chunk, by time and channel."""
    items = [item.model_dump(mode="json") for item in _require_lattice(transcript)]
    return json.dumps(items, ensure_ascii=False) + "\n"


def kaldi(transcript: Transcript) -> str:
    """A Kaldi text archive, one lattice per chunk; each is named by recording, channel and hundredths of a
    second."""
    name = _UNSAFE.sub("_", transcript.audio.name) or "recording"
    return "".join(format_entry(item, name) for item in _require_lattice(transcript))


def format_entry(chunk: Lattice, name: str) -> str:
    """One lattice as an entry of the archive."""
    span = f"{round(chunk.start * 100):07}-{round(chunk.end * 100):07}"
    lines = [f"{name}-{chunk.channel}-{span}", *_lines(chunk)]
    return "".join(line + "\n" for line in lines) + "\n"


def _lines(chunk: Lattice) -> Iterator[str]:
    frames = [round((time - chunk.start) / chunk.frame_seconds) for time in chunk.times]
    last = max(round((chunk.end - chunk.start) / chunk.frame_seconds), *frames)
    for arc in chunk.arcs:
        spent = frames[arc.target] - frames[arc.source]
        word = _UNSAFE.sub("_", arc.word) or EPSILON
        yield f"{arc.source} {arc.target} {word} {_cost(arc.lm, arc.acoustic, spent)}"
    for end in chunk.ends:
        yield f"{end.state} {_cost(end.lm, end.acoustic, last - frames[end.state])}"


def _cost(lm: float, acoustic: float, frames: int) -> str:
    # Adding zero turns -0.0 into 0.0.
    return f"{-lm + 0.0:.7g},{-acoustic + 0.0:.7g},{'_'.join('1' * frames)}"


def _require_lattice(transcript: Transcript) -> tuple[Lattice, ...]:
    if not transcript.lattice and transcript.options.get("lattice") is None:
        raise NotFound("There is no lattice: submit the job with the option `lattice`.")
    return transcript.lattice
