"""The subcommands of the review. Clients of the HTTP API."""

from dataclasses import asdict, dataclass
from getpass import getuser
from itertools import islice
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.completion import complete_batch
from api.cli.connection import Server, out, print_json
from api.cli.tables import format_duration
from spool.commandline.app import new_app
from spool.domain.archive.review import Reason
from spool.schemas.common import Versions
from spool.schemas.review import DoubtsOut, EstimateOut, ReviewPassageOut, ReviewRecordingOut, SampleOut

review = new_app("List doubtful passages; mark those that you checked; estimate errors.", "review")


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Filter:
    """Restricts which passages or recordings are listed."""

    project: Annotated[str | None, Parameter(help="Only in this project.")] = None
    batch: Annotated[str | None, Parameter(completer=complete_batch, help="Only in jobs of this batch.")] = (
        None
    )
    name: Annotated[str | None, Parameter(help="Only in recordings with this in their name.")] = None
    tag: Annotated[str | None, Parameter(metavar="KEY[=VALUE]", help="Only in jobs with this tag.")] = None
    model: Annotated[str | None, Parameter(help="Only in jobs of this model.")] = None
    reason: Annotated[Reason | None, Parameter(help="Only for this reason.")] = None


@review.command(name="list")
def list_passages(
    *,
    only: Filter = Filter(),
    checked: Annotated[bool, Parameter(help="List checked passages instead.")] = False,
    sample: Annotated[str | None, Parameter(help="Only passages of this sample.")] = None,
    job: Annotated[str | None, Parameter(help="Only passages of this job.")] = None,
    versions: Annotated[
        Versions | None,
        Parameter(
            help="Each recording's newest transcript, or all. Default: newest; with --job or --sample all."
        ),
    ] = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1), help="Number of passages to list.")] = 20,
    server: Server = Server(),
) -> None:
    """List unchecked passages, the most doubtful first."""
    with server.connect() as spool:
        passages = spool.review(**asdict(only), checked=checked, sample=sample, job=job, versions=versions)
        listed = list(islice(passages, limit))
        address = spool.url
    if server.as_json:
        print_json(listed)
        return
    if not listed:
        out.print("nothing to review", style="dim")
    for passage in listed:
        out.print(_heading(passage), soft_wrap=True)
        out.print(Text(f"  {passage.text or 'speech without words'}"), soft_wrap=True)
        out.print(Text(f"    {address}{passage.url}", "dim"), soft_wrap=True)


@review.command(name="recordings")
def list_recordings(
    *,
    only: Filter = Filter(),
    limit: Annotated[int, Parameter(validator=Number(gte=1), help="Number of recordings to list.")] = 20,
    server: Server = Server(),
) -> None:
    """List recordings with unchecked passages, the most doubtful first."""
    with server.connect() as spool:
        listed = list(islice(spool.review_recordings(**asdict(only)), limit))
    if server.as_json:
        print_json(listed)
        return
    if not listed:
        out.print("nothing to review", style="dim")
    for recording in listed:
        out.print(_recording(recording), soft_wrap=True)


@review.command(name="check")
def check(
    job_id: Annotated[str, Parameter(name="ID", help="A job's id.")],
    passage: Annotated[int, Parameter(validator=Number(gte=0), help="The passage's number in the job.")],
    /,
    *,
    undo: Annotated[bool, Parameter(help="Remove the mark.")] = False,
    author: Annotated[
        str | None, Parameter(help="Who checked it. Default: the user of this computer.")
    ] = None,
    server: Server = Server(),
) -> None:
    """Mark a passage as checked, because its words are right."""
    with server.connect() as spool:
        marked = spool.check_passage(job_id, passage, author=author or getuser(), checked=not undo)
    server.show(marked, _heading(marked), soft_wrap=True)


ProjectName = Annotated[str | None, Parameter(help="Only in this project. Default: the key's.")]
BatchId = Annotated[str | None, Parameter(completer=complete_batch, help="Only in jobs of this batch.")]
ModelName = Annotated[str | None, Parameter(help="Only in jobs of this model.")]
Points = Annotated[
    float,
    Parameter(validator=Number(gte=0.1, lte=50), help="Margin of error in percentage points: 2 is ±2 %."),
]


@review.command(name="size")
def size(
    *,
    project: ProjectName = None,
    batch: BatchId = None,
    model: ModelName = None,
    margin: Points = 2.0,
    server: Server = Server(),
) -> None:
    """Show how many passages to listen to for the word error rate."""
    with server.connect() as spool:
        needed = spool.sample_size(project=project, batch=batch, model=model, margin=margin / 100)
    if server.as_json:
        print_json(needed)
        return
    out.print(
        f"listen to {needed.passages} of {needed.population} passages to know the word error rate within "
        f"±{margin:g} points"
    )


@review.command(name="sample")
def draw(
    *,
    project: ProjectName = None,
    batch: BatchId = None,
    model: ModelName = None,
    margin: Points = 2.0,
    passages: Annotated[
        int | None,
        Parameter(validator=Number(gte=2), help="How many to draw. Default: as many as the margin requires."),
    ] = None,
    seed: Annotated[
        int | None, Parameter(validator=Number(gte=0), help="Seed, to draw the same passages again.")
    ] = None,
    author: Annotated[str | None, Parameter(help="Default: the user of this computer.")] = None,
    server: Server = Server(),
) -> None:
    """Draw a random sample of passages to listen to."""
    with server.connect() as spool:
        drawn = spool.draw_sample(
            project=project,
            batch=batch,
            model=model,
            margin=margin / 100,
            passages=passages,
            seed=seed,
            author=author or getuser(),
        )
    print_json(drawn) if server.as_json else _print_sample(drawn)


@review.command(name="estimate")
def estimate(
    sample_id: Annotated[
        str | None, Parameter(name="ID", help="A sample's id. Without one, all samples.")
    ] = None,
    /,
    *,
    project: ProjectName = None,
    server: Server = Server(),
) -> None:
    """Print the word error rate of samples, with its 95 % interval."""
    with server.connect() as spool:
        drawn = list(spool.samples(project=project)) if sample_id is None else [spool.sample(sample_id)]
    if server.as_json:
        print_json(drawn)
        return
    if not drawn:
        out.print("no samples", style="dim")
    for each in drawn:
        _print_sample(each)


def _print_sample(sample: SampleOut) -> None:
    of = ", ".join(each for each in (sample.project, sample.batch, sample.model) if each)
    out.print(
        f"{sample.id}  {of}: {sample.estimate.checked} of {sample.size} passages checked", soft_wrap=True
    )
    for name, estimated in {"all": sample.estimate, **sample.by_model}.items():
        out.print(f"  {name}: {_rate(estimated)}", soft_wrap=True)


def _rate(estimated: EstimateOut) -> str:
    if estimated.rate is None:
        return "nothing checked yet"
    if estimated.low is None or estimated.high is None:
        return f"WER {estimated.rate:.1%}"
    return (
        f"WER {estimated.rate:.1%}, 95 % interval {estimated.low:.1%} to {estimated.high:.1%} "
        f"({estimated.errors} errors in {estimated.words} words)"
    )


def _why(doubts: DoubtsOut) -> str:
    return ", ".join(f"{name} {value:.0%}" for name, value in doubts.model_dump().items() if value >= 0.005)


def _recording(recording: ReviewRecordingOut) -> Text:
    return Text.assemble(
        (f"{recording.doubt:4.0%}  ", "yellow"),
        (recording.name, "bold"),
        (f"  {recording.job}", "dim"),
        f"  {recording.unchecked} of {recording.passages} passages to check  {_why(recording.doubts)}",
    )


def _heading(passage: ReviewPassageOut) -> Text:
    line = Text.assemble(
        (f"{passage.doubt:4.0%} ", "yellow"),
        (f" {format_duration(passage.start)}  ", "cyan"),
        (passage.name, "bold"),
        (f"  {passage.job} {passage.passage}", "dim"),
        f"  {_why(passage.doubts)}",
    )
    return line if passage.checked_by is None else line.append(f"  checked by {passage.checked_by}", "green")
