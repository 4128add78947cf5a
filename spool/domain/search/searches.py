"""The searches: over which heads of a model, and by which decoder. Options name those that take them."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

SearchName = Literal["greedy", "beam", "rescore", "attention", "wfst"]
HeadName = Literal["tdt", "rnnt", "ctc", "attention", "ctc+attention", "rnnt+attention"]
DECODERS: tuple[SearchName, ...] = ("greedy", "beam", "rescore", "attention", "wfst")
HEADS = ("tdt", "rnnt", "ctc", "attention")


class Search(NamedTuple):
    """One way to search one kind of head. variant: of those that have head and decoder in common."""

    head: HeadName
    decoder: SearchName
    variant: str = ""


TRANSDUCER_GREEDY = (Search("tdt", "greedy"), Search("rnnt", "greedy"))
TRANSDUCER_BEAM = (Search("tdt", "beam"), Search("rnnt", "beam"))
FRAME_BEAM = Search("rnnt", "beam", "frames")
"""A transducer's beam with which a CTC head can be mixed."""
CTC_GREEDY = Search("ctc", "greedy")
CTC_BEAM = Search("ctc", "beam")
CTC_PREFIXES = Search("ctc", "beam", "prefixes")
"""A CTC head's beam that sums over alignments."""
GRAPH_SEARCH = Search("ctc", "wfst")
RESCORED_CTC = Search("ctc+attention", "rescore")
CTC_ATTENTION = Search("ctc+attention", "attention")
RESCORED_TRANSDUCER = Search("rnnt+attention", "rescore")
ATTENTION_GREEDY = Search("attention", "greedy")
ATTENTION_BEAM = Search("attention", "beam")

CTC_BEAMS = (CTC_BEAM, CTC_PREFIXES)
RESCORED = (RESCORED_CTC, RESCORED_TRANSDUCER)
BEAMS = (
    *(*TRANSDUCER_BEAM, FRAME_BEAM, *CTC_BEAMS, GRAPH_SEARCH),
    *(*RESCORED, CTC_ATTENTION, ATTENTION_BEAM),
)
"""Those that keep several hypotheses."""
FUSING = (
    *(*TRANSDUCER_GREEDY, *TRANSDUCER_BEAM, *CTC_BEAMS, RESCORED_CTC),
    *(ATTENTION_GREEDY, ATTENTION_BEAM),
)
"""Those that take a language model and phrases."""


def decoders_of(searches: Iterable[Search]) -> tuple[SearchName, ...]:
    """Their decoders; none if it is all of them."""
    found = {search.decoder for search in searches}
    return () if len(found) == len(DECODERS) else tuple(name for name in DECODERS if name in found)


def heads_of(searches: Iterable[Search]) -> tuple[str, ...]:
    """The heads that a request may name for them; none if it is all of them."""
    found = {head for search in searches for head in search.head.split("+")}
    return () if len(found) == len(HEADS) else tuple(name for name in HEADS if name in found)
