"""The subcommand that searches the transcripts. A client of the HTTP API."""

from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.completion import complete_batch
from api.cli.connection import Server, out, print_json
from api.cli.tables import format_duration
from spool.schemas.common import Versions
from spool.schemas.search import HitOut, MatchOut

Days = ["%Y-%m-%d"]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Filters:
    """In which jobs and words to search."""

    project: Annotated[str | None, Parameter(help="Search only this project.")] = None
    name: Annotated[
        str | None, Parameter(help="Search only recordings with this in their name, in any case.")
    ] = None
    tag: Annotated[str | None, Parameter(metavar="KEY[=VALUE]", help="Search only jobs with this tag.")] = (
        None
    )
    speaker: Annotated[
        str | None, Parameter(help="Search only what this speaker says: a label or a name.")
    ] = None
    confidence: Annotated[
        float | None,
        Parameter(validator=Number(gte=0, lte=1), help="The least confidence of each matching word."),
    ] = None
    start: Annotated[datetime | None, Parameter(name="--from", help="Jobs created on this day or later.")] = (
        None
    )
    end: Annotated[datetime | None, Parameter(name="--to", help="Jobs created before this day.")] = None

    def to_request(self) -> dict[str, Any]:
        """The arguments of the client's `search`."""
        return {
            "project": self.project,
            "name": self.name,
            "tag": self.tag,
            "speaker": self.speaker,
            "confidence": self.confidence,
            "created_from": self.start,
            "created_to": self.end,
        }


def search(
    *words: Annotated[
        str,
        Parameter(
            name="WORD",
            help="Words near each other; '\"a phrase\"', 'begin*', 'sounds~', 'a NEAR/3 b'. Put -- before a "
            "-word to leave out.",
            required=True,
        ),
    ],
    filters: Filters = Filters(),
    batch: Annotated[
        str | None, Parameter(completer=complete_batch, help="Search only jobs of this batch.")
    ] = None,
    language: Annotated[
        str | None,
        Parameter(metavar="CODE", help="Search only recordings mostly in this language, as de."),
    ] = None,
    alternatives: Annotated[
        bool,
        Parameter(
            help="Also search the n-best lists and alternatives that jobs kept.",
        ),
    ] = False,
    versions: Annotated[
        Versions | None,
        Parameter(help="In all transcripts, or in the newest of each recording. Default: all."),
    ] = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1), help="Number of hits to list.")] = 20,
    server: Server = Server(),
) -> None:
    """Search all transcripts for words.

    The newest recording comes first.
    """
    with server.connect() as spool:
        hits = list(
            islice(
                spool.search(
                    " ".join(words),
                    **filters.to_request(),
                    batch=batch,
                    language=language,
                    alternatives=alternatives,
                    versions=versions,
                ),
                limit + 1,
            )
        )
        address = spool.url
    more, hits = len(hits) > limit, hits[:limit]
    if server.as_json:
        print_json(hits)
        return
    if not hits:
        out.print("nothing found", style="dim")
    for (job, name_), group in groupby(hits, key=lambda hit: (hit.job, hit.name)):
        out.print(Text.assemble((name_, "bold"), "  ", (job, "dim")))
        for hit in group:
            out.print(_line(hit), soft_wrap=True)
            for match in hit.matches:
                if match.alternative is not None:
                    out.print(_alternative(hit, match), soft_wrap=True)
            out.print(Text(f"    {address}{hit.url}", "dim"), soft_wrap=True)
    if more:
        out.print(f"more than {limit} found; --limit lists more", style="dim")


def _line(hit: HitOut) -> Text:
    line = Text(f"  {format_duration(hit.start)}  ", "cyan")
    who = hit.speaker_name or hit.speaker
    if who:
        line.append(f"{who}: ", "dim")
    text = Text(hit.text, style="default")
    for match in hit.matches:
        text.stylize("bold yellow", match.first_character, match.last_character)
    return line.append_text(text)


def _alternative(hit: HitOut, match: MatchOut) -> Text:
    has = hit.text[match.first_character : match.last_character]
    sure = "" if match.confidence is None else f" ({match.confidence:.2f})"
    return Text.assemble(
        f"    {format_duration(match.start)}  heard beside “{has}”: ",
        (match.alternative or "", "yellow"),
        sure,
    )
