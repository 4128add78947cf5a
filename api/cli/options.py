"""The options that several subcommands share: those of jobs, derived from their declarations, and where jobs
run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from cyclopts import Parameter

from api.cli.archive.outputs import Connection, Output
from api.cli.completion import complete_model
from spool.client.options import Options
from spool.commandline.app import GROUPS
from spool.commandline.flags import Flags, declare_flags, read_phrases
from spool.commandline.speakers import SpeakerCount
from spool.domain.priority import PriorityName
from spool.domain.transcript import language_of_text
from spool.errors import InvalidRequest

_ORDER, _SPEAKERS, _WORDS = (GROUPS[name] for name in ("Routing and order", "Speakers", "Words to expect"))


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Speakers(SpeakerCount):
    """What is known of the speakers."""

    within_channels: Annotated[
        bool,
        Parameter(
            help="Tell speakers apart within each separate channel; otherwise each channel is one speaker.",
        ),
    ] = False
    diarizer: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            help="What tells speakers apart: default, or sortformer for up to four speakers, overlap too.",
        ),
    ] = None
    voice_prints: Annotated[
        bool,
        Parameter(
            help="Keep a voice print of each speaker, to recognise voices that you named.",
        ),
    ] = False

    def to_diarization(self) -> dict[str, Any]:
        """The request's `diarization`. Raises InvalidRequest for options that contradict each other."""
        asked: dict[str, Any] = {
            "speakers": self.to_request(),
            "within_channels": self.within_channels or None,
            "model": self.diarizer,
            "voice_prints": self.voice_prints or None,
        }
        return {name: value for name, value in asked.items() if value is not None}


class JobFlags(Flags):
    """The options of jobs on a server. What is not simply a field of `Options` is written out here."""

    model: Annotated[
        str | None,
        Parameter(
            completer=complete_model,
            metavar="NAME",
            help="Name of a model on the server. Default: the default model (`spool models default`).",
        ),
    ] = None  # type: ignore[assignment]  # the server has a default
    language: Annotated[
        str | None,
        Parameter(
            metavar="CODE",
            help="Language spoken, such as en; en,de chooses among these. Default: auto (detect it).",
        ),
    ] = None
    diarization: Annotated[None, Parameter(parse=False)] = None
    boost: Annotated[
        list[str] | None,
        Parameter(group=_WORDS, metavar="PHRASE", help="Word or phrase to boost; repeat for several."),
    ] = None
    boost_file: Annotated[
        Path | None,
        Parameter(group=_WORDS, metavar="FILE", help="File of words and phrases to boost, one per line."),
    ] = None
    glossary: Annotated[
        str | None,
        Parameter(
            group=_WORDS,
            metavar="NAME[@VERSION]",
            help="Boost a glossary of the project (`spool glossary`).",
        ),
    ] = None
    boost_weight: Annotated[
        float | None, Parameter(group=_WORDS, help="Weight of boosted phrases. Default: 1.")
    ] = None

    def to_request(self, diarization: dict[str, Any] | None = None, *, whole: bool) -> dict[str, Any]:
        """The `options` of the request that were given. whole: they are all options of a job, so that
        contradictions are refused here. Raises InvalidRequest."""
        given = self.to_options()
        if "language" in given:
            given["language"] = language_of_text(self.language) or "auto"
        phrases = [*(self.boost or ()), *read_phrases(self.boost_file)]
        boost = boost_of(phrases, self.glossary, self.boost_weight)
        if whole:
            self.check(also=("boost",) if boost else ())
        composed = {"boost": boost, "diarization": diarization}
        return given | {name: value for name, value in composed.items() if value is not None}


declare_flags(JobFlags)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Transcription:
    """How recordings are transcribed: all options of jobs."""

    flags: JobFlags = field(default_factory=JobFlags)
    diarize: Annotated[
        bool,
        Parameter(help="Tell speakers apart. The options about speakers imply it."),
    ] = False
    speakers: Annotated[Speakers, Parameter(name="*", group=_SPEAKERS)] = field(default_factory=Speakers)

    def to_request(self, *, whole: bool = True) -> Options:
        """The `options` of the request that were given. whole: False if they change options of a job, which
        only the server knows. Raises InvalidRequest."""
        asked = self.speakers.to_diarization()
        chosen = self.flags.to_request(asked if asked or self.diarize else None, whole=whole)
        return cast("Options", chosen)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Place:
    """Project, tags, order and routing of jobs."""

    project: Annotated[
        str | None, Parameter(help="Project that is charged. Default: the key's project, else `default`.")
    ] = None
    tag: Annotated[
        list[str] | None,
        Parameter(metavar="NAME=VALUE", help="Tag to keep with each job; repeat for several."),
    ] = None
    pool: Annotated[
        str | None,
        Parameter(group=_ORDER, help="Pool of workers to use. Default: any worker that has the model."),
    ] = None
    worker: Annotated[
        str | None, Parameter(group=_ORDER, help="Name of the only worker that may run it.")
    ] = None
    requires: Annotated[
        str | None,
        Parameter(
            group=_ORDER,
            metavar="NAME=VALUE,…",
            help="Required machine: backend=metal,chip=M4,memory_gb=16.",
        ),
    ] = None
    priority: Annotated[
        PriorityName | None, Parameter(group=_ORDER, help="Order among the project's own jobs.")
    ] = None
    deadline: Annotated[
        str | None,
        Parameter(
            group=_ORDER,
            metavar="TIME",
            help="Time by which it should be done, such as 2026-11-20T18:00Z.",
        ),
    ] = None

    def to_request(self) -> dict[str, Any]:
        """The fields of the request. Raises InvalidRequest."""
        pairs = self.tag or []
        if any("=" not in pair for pair in pairs):
            raise InvalidRequest("--tag must have the form NAME=VALUE.")
        fields: dict[str, Any] = {
            "project": self.project,
            "pool": self.pool,
            "worker": self.worker,
            "tags": dict(pair.split("=", 1) for pair in pairs),
        }
        if self.requires is not None:
            fields["requires"] = _requirement(self.requires)
        return fields | {"priority": self.priority, "deadline": self.deadline}


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Submission:
    """How recordings become jobs."""

    place: Place = field(default_factory=Place)
    options: Transcription = field(default_factory=Transcription)
    deliver: Output = field(default_factory=Output)
    connection: Connection = None

    def to_request(self) -> dict[str, Any]:
        """The fields of the request that were given. Raises InvalidRequest."""
        request = self.place.to_request() | {"options": self.options.to_request()} | self.deliver.to_request()
        return request if self.connection is None else request | {"connection": self.connection}


Again = Annotated[
    bool,
    Parameter(
        name=("--again", "--no-reuse"),
        negative=(),
        help="Submit and transcribe recordings again that were submitted before with the same options.",
    ),
]


def repeat_fields(again: bool) -> dict[str, bool]:
    """The fields of a request that say what happens to recordings that were submitted before."""
    return {"deduplicate": not again, "reuse": not again}


def _requirement(text: str) -> dict[str, str | int]:
    """Parse `--requires`. Raises InvalidRequest."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if any(not name.strip() or not value.strip() for name, _, value in pairs):
        raise InvalidRequest("--requires is a list such as backend=metal,memory_gb=16.")
    values = {name.strip(): value.strip() for name, _, value in pairs}
    return {name: int(value) if value.isdecimal() else value for name, value in values.items()}


def boost_of(phrases: Sequence[str], glossary: str | None, weight: float | None) -> dict[str, Any] | None:
    """The `boost` of the request; None if it names no phrases. Raises InvalidRequest."""
    if not phrases and glossary is None:
        if weight is not None:
            raise InvalidRequest("--boost-weight needs --boost, --boost-file or --glossary.")
        return None
    asked = {"phrases": list(phrases) or None, "glossary": glossary, "weight": weight}
    return {name: value for name, value in asked.items() if value is not None}
