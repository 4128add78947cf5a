"""Options that several subcommands take, each written down once as the field of a dataclass.

A command names the dataclass as one of its parameters; `takes_options` shows Typer the fields in its place.
Knows names and how they become a request; the server judges what they say.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from api.cli.completion import complete_model
from spool.domain.priority import PriorityName
from spool.errors import InvalidRequest

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Search:
    """What may be asked of the search."""

    model: Annotated[
        str | None, typer.Option(autocompletion=complete_model, help="A model the server knows.")
    ] = None
    decoder: Annotated[Literal["greedy", "beam"] | None, typer.Option(help="How to search.")] = None
    beam: Annotated[int | None, typer.Option(min=1, max=32, help="Hypotheses kept by the beam.")] = None
    channels: Annotated[
        Literal["mix", "separate"] | None, typer.Option(help="Mix channels or keep them apart.")
    ] = None
    nbest: Annotated[
        int | None, typer.Option(min=1, max=32, help="Hypotheses of each chunk in the transcript.")
    ] = None
    alternatives: Annotated[
        int | None, typer.Option(min=0, max=20, help="Other words that the beam heard in place of each one.")
    ] = None
    lattice: Annotated[
        float | None, typer.Option(min=0, metavar="PRUNE", help="Keep lattices; 5 is a usual reach.")
    ] = None
    boost: Annotated[
        list[str] | None, typer.Option(metavar="PHRASE", help="Favour a word or phrase; repeat.")
    ] = None
    boost_file: Annotated[Path | None, typer.Option(help="Favour words and phrases, one a line.")] = None
    boost_weight: Annotated[
        float | None, typer.Option(help="How much phrases are favoured; 1 unless given.")
    ] = None
    language_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A language model the server knows.")
    ] = None
    lm_weight: Annotated[float | None, typer.Option(help="The language model's weight.")] = None
    lm_blanks: Annotated[
        bool, typer.Option("--lm-blanks", help="Let the language model have a say in blanks too.")
    ] = False
    pruning: Annotated[
        Literal["late", "early"] | None,
        typer.Option(help="Fuse before the beam is cut (late) or after (early)."),
    ] = None
    context: Annotated[
        Literal["chunk", "job"] | None,
        typer.Option(help="Let language model and phrases go on from chunk to chunk (job)."),
    ] = None
    scores: Annotated[
        Literal["float", "fixed"] | None, typer.Option(help="Add scores up as floats or in fixed point.")
    ] = None

    def told(self) -> dict[str, Any]:
        """The request's `options`: what was said. Raises InvalidRequest."""
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        boost = boost_of(chosen.pop("boost"), chosen.pop("boost_file"), chosen.pop("boost_weight"))
        chosen |= {"boost": boost, "lm_blanks": self.lm_blanks or None}
        return {name: value for name, value in chosen.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Place:
    """Whose it is, what it is called by, and who may take it."""

    project: Annotated[
        str | None, typer.Option(help="Whom the cost is booked on; the key's own, else `default`.")
    ] = None
    tag: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Kept with each job.")] = None
    pool: Annotated[
        str | None, typer.Option(help="Which pool of workers; without one, any that has the model.")
    ] = None
    worker: Annotated[str | None, typer.Option(help="Pin to one worker, by name.")] = None
    requires: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=VALUE,…", help="What the machine has to be: backend=metal,chip=M4,memory_gb=16."
        ),
    ] = None
    priority: Annotated[
        PriorityName | None, typer.Option(help="Who goes first among the project's own: high, normal or low.")
    ] = None
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it should be done, as 2026-11-20T18:00Z.")
    ] = None

    def told(self) -> dict[str, Any]:
        """The fields of the request. Raises InvalidRequest."""
        pairs = self.tag or []
        if any("=" not in pair for pair in pairs):
            raise InvalidRequest("A tag is NAME=VALUE.")
        tags = dict(pair.split("=", 1) for pair in pairs)
        fields: dict[str, Any] = {
            "project": self.project,
            "pool": self.pool,
            "worker": self.worker,
            "tags": tags,
        }
        if self.requires is not None:
            fields["requires"] = _requirement(self.requires)
        return fields | {"priority": self.priority, "deadline": self.deadline}


def _requirement(text: str) -> dict[str, str | int]:
    """What `--requires` says. Raises InvalidRequest."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if any(not name.strip() or not value.strip() for name, _, value in pairs):
        raise InvalidRequest("--requires is a list such as backend=metal,memory_gb=16.")
    values = {name.strip(): value.strip() for name, _, value in pairs}
    return {name: int(value) if value.isdecimal() else value for name, value in values.items()}


def takes_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """The command with the fields of its dataclass parameters as parameters of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind) and isinstance(kind, type)}

    def run(**given: Any) -> Result:  # noqa: ANN401 - whatever Typer read
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        return command(**given)

    shown = list(_shown(inspect.signature(command), hints, groups))
    run.__doc__, run.__name__, run.__module__ = command.__doc__, command.__name__, command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return run


def _shown(
    signature: inspect.Signature, hints: dict[str, Any], groups: dict[str, type]
) -> Iterator[inspect.Parameter]:
    parameter = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    for name, own in signature.parameters.items():
        if name not in groups:
            yield parameter(name, default=own.default, annotation=hints[name])
            continue
        of_group = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            yield parameter(field.name, default=field.default, annotation=of_group[field.name])


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
