"""The options of `spool-worker transcribe` and `listen`: those of jobs (`spool.domain.options`), with files
of this machine where a job names something on a server."""

import re
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from pydantic import Field

from spool.commandline.app import GROUPS
from spool.commandline.flags import Flags, declare_flags, read_phrases
from spool.commandline.speakers import SpeakerCount
from spool.domain.archive.diarization import Diarization
from spool.domain.declaration import Option
from spool.domain.search.fields import SearchFields
from spool.domain.search.graph import GraphSearch
from spool.domain.search.rescoring import Rescoring
from spool.domain.transcript import language_of_text
from spool.errors import InvalidRequest
from spool.formats import TextFormat
from worker.jobs.request import request_of
from worker.models.requests import DecodeRequest

LATTICE_BEAM = 5.0
_SEARCH, _WORDS, _SPEAKERS = (GROUPS[name] for name in ("Search", "Words to expect", "Speakers"))


class GraphFile(GraphSearch):
    """A decoding graph in a file."""

    name: Annotated[
        str,
        Option("Decoding graph", flag="graph", metavar="FILE"),
        Field(
            description="Decoding graph of `spool graph build`, for --decoder wfst; rescore then orders its "
            "hypotheses."
        ),
    ]


class ReaderFile(Rescoring):
    """A second model in a file."""

    model: Annotated[
        str,
        Option("Search", flag="rescore-model", metavar="PLACE"),
        Field(
            description="Model whose attention decoder orders the beam's hypotheses (Whisper, Canary, U2++), "
            "or a language model: an LSTM's folder, or an ARPA file over the model's tokens."
        ),
    ]


class LocalFlags(Flags):
    """The options that a file is searched with; not all of a job's apply to one."""

    model: Annotated[
        str,
        Parameter(
            metavar="PLACE", help="Folder of a model, a .nemo file, a name in the catalogue or a hub id."
        ),
    ]
    # As wide as memory allows: nobody else waits for this machine.
    beam: Annotated[
        int, Field(ge=1, strict=True, description="Number of hypotheses that the search keeps.")
    ] = 4
    nbest: Annotated[int, Field(ge=1, strict=True, description="Number of hypotheses to report.")] = 1
    graph: GraphFile | None = None
    rescore: ReaderFile | None = None
    att_context: Annotated[
        str | None,
        Parameter(
            group=_SEARCH,
            metavar="LEFT,RIGHT",
            help="Attention context of a cache-aware model, in encoder frames, such as 70,13. "
            "Default: the model's first.",
        ),
    ] = None

    def resolve(self, phrases: tuple[str, ...] = (), boost: float = 1.0) -> DecodeRequest:
        """The engine's request. Raises InvalidRequest."""
        self.check(also=("boost",) if phrases else ())
        request = request_of(self, phrases, boost)
        search = request.search.model_copy(update={"att_context": context_of(self.att_context)})
        return request.model_copy(update={"search": search})


class TranscribeFlags(LocalFlags):
    """The options of `spool-worker transcribe`."""

    language: Annotated[
        str | None,
        Parameter(
            metavar="CODE",
            help="Language spoken, such as en; en,de chooses among these. Default: auto (detect it).",
        ),
    ] = None
    language_model: Annotated[
        str | None,
        Parameter(
            name=("--lm", "--language-model"),
            group=_WORDS,
            metavar="FILE",
            help="ARPA file of an n-gram language model over the model's tokens.",
        ),
    ] = None
    channels: Annotated[Literal["mix"], Parameter(parse=False)] = "mix"
    on_truncated: Annotated[Literal["transcribe"], Parameter(parse=False)] = "transcribe"
    diarization: Annotated[None, Parameter(parse=False)] = None
    lattice: Annotated[float | None, Parameter(parse=False)] = None
    lattice_form: Annotated[
        Literal["json", "kaldi"] | None,
        Parameter(
            name="--lattice",
            group=_SEARCH,
            help="Add the lattice of each chunk to the JSON. --format lattice or kaldi prints lattices "
            "alone.",
        ),
    ] = None
    prune: Annotated[
        float | None,
        Parameter(group=_SEARCH, help="Pruning beam of lattices, in natural logarithm. Default: 5."),
    ] = None
    boost: Annotated[
        list[str] | None,
        Parameter(group=_WORDS, metavar="PHRASE", help="Phrase to boost; repeat for several."),
    ] = None
    boost_file: Annotated[
        Path | None, Parameter(group=_WORDS, metavar="FILE", help="File of phrases to boost, one per line.")
    ] = None
    boost_weight: Annotated[float, Parameter(group=_WORDS, help="Weight of boosted phrases.")] = 1.0
    form: Annotated[TextFormat, Parameter(name="--format", help="Output format.")] = "json"
    diarize: Annotated[
        bool, Parameter(help="Tell speakers apart. --speakers and --format rttm imply it.")
    ] = False
    diarizer: Annotated[
        str,
        Parameter(
            group=_SPEAKERS,
            metavar="NAME|FILE",
            help="Model that tells speakers apart: default, or a Sortformer (sortformer, a name in the "
            "catalogue, or a .nemo file). Implies --diarize.",
        ),
    ] = "default"

    def request(self) -> DecodeRequest:
        """The engine's request. Raises InvalidRequest."""
        changes = {"language": language_of_text(self.language), "lattice": self._lattice_beam()}
        phrases = (*(self.boost or ()), *read_phrases(self.boost_file))
        return self.model_copy(update=changes).resolve(phrases, self.boost_weight)

    def to_diarization(self, speakers: SpeakerCount) -> Diarization | None:
        """The requested diarization, None if there is none. Raises InvalidRequest."""
        known = speakers.to_request()
        is_requested = self.diarize or self.form == "rttm" or known is not None or self.diarizer != "default"
        return Diarization.model_validate({"speakers": known}) if is_requested else None

    def _lattice_beam(self) -> float | None:
        if self.lattice_form is not None and self.form != "json":
            raise InvalidRequest(
                "--lattice needs --format json; --format lattice or kaldi prints lattices alone"
            )
        if self.lattice_form is None and self.form not in ("lattice", "kaldi"):
            if self.prune is not None:
                raise InvalidRequest("--prune needs --lattice, or --format lattice or kaldi")
            return None
        return LATTICE_BEAM if self.prune is None else self.prune


class ListenFlags(LocalFlags):
    """The options of `spool-worker listen`: those of the search."""


declare_flags(TranscribeFlags)
declare_flags(ListenFlags, only={"model", "att_context", *SearchFields.model_fields})


def context_of(text: str | None) -> tuple[int, int] | None:
    """The pair of frames that `--att-context` gives. Raises InvalidRequest."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(-?\d+)\s*,\s*(-?\d+)\s*", text)
    if match is None:
        raise InvalidRequest(f"--att-context {text!r} must have the form LEFT,RIGHT, such as 70,13")
    return int(match[1]), int(match[2])
