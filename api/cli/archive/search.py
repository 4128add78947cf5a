"""The subcommand that searches the transcripts. A client of the HTTP API."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.completion import complete_batch
from api.cli.connection import Server, out, print_json
from api.cli.tables import format_duration
from spool.client import Spool
from spool.domain.jobs import JobState
from spool.schemas.common import Versions
from spool.schemas.search import FoundOut, HitOut, MatchOut, SoundOut, SoundsOut

SAME_SECONDS = 1.0
"""Hits of two transcripts of a recording that are at most so far apart are the same place."""


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

    def to_request(self) -> dict[str, Any]:
        """The arguments of the client's `search`."""
        return {
            "project": self.project,
            "name": self.name,
            "tag": self.tag,
            "speaker": self.speaker,
            "confidence": self.confidence,
        }


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class BySound:
    """What to search by its sound."""

    sound: Annotated[
        str | None,
        Parameter(
            metavar="WORDS", help="Also find what sounds like these words, in jobs submitted with --witness."
        ),
    ] = None
    spelling: Annotated[
        str | None,
        Parameter(metavar="PHONES", help='How --sound is said, as "OW K AA N K W OW" or in IPA.'),
    ] = None

    def to_request(self) -> dict[str, str]:
        """What was given, as arguments of the client's `search_page`."""
        given = {"sound": self.sound, "spelling": self.spelling}
        return {name: value for name, value in given.items() if value is not None}


def search(
    *words: Annotated[
        str,
        Parameter(
            name="WORD",
            help="Words near each other; '\"a phrase\"', 'begin*', 'sounds~', 'a NEAR/3 b'. Put -- before a "
            "-word to leave out. Without words, print what can be searched.",
        ),
    ],
    filters: Filters = Filters(),
    start: Annotated[datetime | None, Parameter(name="--from", help="Jobs created on this day or later.")] = (
        None
    ),
    end: Annotated[datetime | None, Parameter(name="--to", help="Jobs created before this day.")] = None,
    batch: Annotated[
        str | None, Parameter(completer=complete_batch, help="Search only jobs of this batch.")
    ] = None,
    language: Annotated[
        str | None,
        Parameter(metavar="CODE", help="Search only recordings mostly in this language, as de."),
    ] = None,
    by_sound: BySound = BySound(),
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

    The newest recording comes first. With `--sound` or `--spelling` the likeliest places do, and `--json` has
    beside the `items` what was searched, as `sounds`.
    """
    if not any(map(str.strip, words)) and not by_sound.to_request():
        _print_collections(server)
        return
    with server.connect() as spool:
        asked: dict[str, Any] = {
            **filters.to_request(),
            **by_sound.to_request(),
            "created_from": start,
            "created_to": end,
            "batch": batch,
            "language": language,
            "alternatives": alternatives,
            "versions": versions,
        }
        hits, said = _find(spool, " ".join(words), asked, limit)
        address = spool.url
    more, hits = len(hits) > limit, hits[:limit]
    if server.as_json:
        print_json(hits if said is None else FoundOut(items=hits, next_cursor=None, sounds=said))
        return
    if said is not None:
        for note in _describe(said):
            out.print(note, style="dim", soft_wrap=True, markup=False)
    _print_hits(hits, address)
    if more:
        out.print(f"more than {limit} found; --limit lists more", style="dim")


def _print_collections(server: Server) -> None:
    """How many transcripts of each project can be searched."""
    with server.connect() as spool:
        projects = [each for each in spool.overview(batches=1).collections if each.batch is None]
    if server.as_json:
        print_json(projects)
        return
    done = {each.project: each.counts.get(JobState.DONE, 0) for each in projects}
    if not any(done.values()):
        out.print("Nothing is transcribed yet.")
        return
    for project, count in done.items():
        out.print(f"{project}: {count} {'transcript' if count == 1 else 'transcripts'}", markup=False)
    out.print("Search them with `spool search WORD…`, or only one project's with --project.", markup=False)


def group_hits(hits: Sequence[HitOut]) -> list[list[list[HitOut]]]:
    """The hits of each recording, in the order in which recordings appear: those at the same time together,
    which are of its versions and copies."""
    recordings: dict[str, list[list[HitOut]]] = {}
    for hit in hits:
        places = recordings.setdefault(hit.recording, [])
        for place in places:
            if all(each.job != hit.job for each in place) and abs(place[0].start - hit.start) <= SAME_SECONDS:
                place.append(hit)
                break
        else:
            places.append([hit])
    return list(recordings.values())


def _elsewhere(hit: HitOut, other: HitOut) -> Text:
    """Where else the hit is: in a copy with another name, or in another version."""
    named = "" if other.name == hit.name else f"{other.name}, "
    return Text(f"    also in {named}{other.model}, {other.created_at:%Y-%m-%d}  {other.job}", "dim")


def _line(hit: HitOut) -> Text:
    line = Text(f"  {format_duration(hit.start)}  ", "cyan")
    who = hit.speaker_name or hit.speaker
    if who:
        line.append(f"{who}: ", "dim")
    text = Text(hit.text, style="default")
    for match in hit.matches:
        text.stylize("bold yellow", match.first_character, match.last_character)
    return line.append_text(text)


def _print_hits(hits: Sequence[HitOut], address: str) -> None:
    if not hits:
        out.print("nothing found", style="dim")
    for recording in group_hits(hits):
        first = recording[0][0]
        out.print(
            Text.assemble(
                (first.name, "bold"), f"  {first.model}, {first.created_at:%Y-%m-%d}  ", (first.job, "dim")
            )
        )
        for hit, *others in recording:
            out.print(_line(hit), soft_wrap=True)
            if hit.sound is not None:
                out.print(_sounding(hit.sound), soft_wrap=True)
            for match in hit.matches:
                if match.alternative is not None:
                    out.print(_alternative(hit, match), soft_wrap=True)
            out.print(Text(f"    {address}{hit.url}", "dim"), soft_wrap=True)
            for other in others:
                out.print(_elsewhere(hit, other), soft_wrap=True)


def _find(
    spool: Spool, words: str, asked: dict[str, Any], limit: int
) -> tuple[list[HitOut], SoundsOut | None]:
    """One hit more than `limit`, if there are so many; a search by sound gives its best ones at once."""
    if "sound" in asked or "spelling" in asked:
        page = spool.search_page(words, **asked, limit=min(limit, 200))
        return list(page.items), page.sounds
    return list(islice(spool.search(words, **asked), limit + 1)), None


def _describe(said: SoundsOut) -> Iterator[str]:
    """What was searched by sound, and what could not be."""
    read = {"dictionary": "", "given": "", "letters": ", read letter by letter"}[said.source]
    yield f"sounds like {' or '.join(said.phones)}{read}, in {said.hours:,.1f} hours"
    if said.without_sounds:
        jobs = "1 transcript" if said.without_sounds == 1 else f"{said.without_sounds:,} transcripts"
        yield f"{jobs} cannot be searched by sound: submitted without --witness, or the witness abstained"
    if said.damaged:
        yield f"left out, since what was heard is damaged: {', '.join(said.damaged)}"


def _sounding(sound: SoundOut) -> Text:
    return Text(
        f"    sounds like it from {format_duration(sound.start)}: {sound.certainty:.0%} sure, "
        f"score {sound.score:.2f}",
        "dim",
    )


def _alternative(hit: HitOut, match: MatchOut) -> Text:
    has = hit.text[match.first_character : match.last_character]
    sure = "" if match.confidence is None else f" ({match.confidence:.2f})"
    return Text.assemble(
        f"    {format_duration(match.start)}  heard beside “{has}”: ",
        (match.alternative or "", "yellow"),
        sure,
    )
