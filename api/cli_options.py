"""What `spool submit` and `spool batch submit` may ask of the search, as options of the command line.

Knows their names and how they become a request's `options`; the server judges them.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from spool.errors import InvalidRequest


class Decoder(StrEnum):
    """How to search."""

    GREEDY = "greedy"
    BEAM = "beam"


class Channels(StrEnum):
    """What to do with more than one channel."""

    MIX = "mix"
    SEPARATE = "separate"


class ScoresName(StrEnum):
    """How scores are added up."""

    FLOAT = "float"
    FIXED = "fixed"


class ContextName(StrEnum):
    """Where language model and phrases begin anew."""

    CHUNK = "chunk"
    JOB = "job"


class Pruning(StrEnum):
    """When language model and phrases have their say."""

    LATE = "late"
    EARLY = "early"


ModelOption = Annotated[str | None, typer.Option("--model", help="A model the server knows.")]
DecoderOption = Annotated[Decoder | None, typer.Option("--decoder", help="How to search.")]
BeamOption = Annotated[int | None, typer.Option("--beam", min=1, max=32, help="Hypotheses kept by the beam.")]
ChannelsOption = Annotated[
    Channels | None, typer.Option("--channels", help="Mix channels or keep them apart.")
]
NbestOption = Annotated[
    int | None, typer.Option("--nbest", min=1, max=32, help="Hypotheses of each chunk in the transcript.")
]
AlternativesOption = Annotated[
    int | None,
    typer.Option(
        "--alternatives", min=0, max=20, help="Other words that the beam heard in place of each one."
    ),
]
LatticeOption = Annotated[
    float | None,
    typer.Option("--lattice", min=0, metavar="PRUNE", help="Keep lattices; 5 is a usual reach."),
]
BoostOption = Annotated[
    list[str] | None, typer.Option("--boost", metavar="PHRASE", help="Favour a word or phrase; repeat.")
]
BoostFileOption = Annotated[
    Path | None, typer.Option("--boost-file", help="Favour words and phrases, one a line.")
]
BoostWeightOption = Annotated[
    float | None, typer.Option("--boost-weight", help="How much phrases are favoured; 1 unless given.")
]
LanguageModelOption = Annotated[
    str | None, typer.Option("--language-model", metavar="NAME", help="A language model the server knows.")
]
LmWeightOption = Annotated[float | None, typer.Option("--lm-weight", help="The language model's weight.")]
LmBlanksOption = Annotated[
    bool, typer.Option("--lm-blanks", help="Let the language model have a say in blanks too.")
]
PruningOption = Annotated[
    Pruning | None, typer.Option("--pruning", help="Fuse before the beam is cut (late) or after (early).")
]
ContextOption = Annotated[
    ContextName | None,
    typer.Option("--context", help="Let language model and phrases go on from chunk to chunk (job)."),
]
ScoresOption = Annotated[
    ScoresName | None, typer.Option("--scores", help="Add scores up as floats or in fixed point.")
]


def boost_of(words: Sequence[str] | None, file: Path | None, weight: float | None) -> dict[str, Any] | None:
    """The request's `boost`; None where nothing is to be favoured. Raises InvalidRequest."""
    phrases = [*(words or ()), *_lines(file)]
    if not phrases:
        if weight is not None:
            raise InvalidRequest("--boost-weight needs --boost or --boost-file.")
        return None
    return {"phrases": phrases} | ({} if weight is None else {"weight": weight})


def _lines(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        lines = [line for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise InvalidRequest(f"{file} is no text in UTF-8.") from None
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from None
    if not lines:
        raise InvalidRequest(f"{file} holds no phrase.")
    return lines
