"""How a job option is declared beside its type, and why options are refused. Pure.

The API, both commands and the documentation read the declarations; nothing else says what an option applies
to.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from spool.domain.option_groups import Group
from spool.domain.search.searches import Search, decoders_of, heads_of


@dataclass(frozen=True, slots=True)
class Option:
    """What a field's type does not say of an option.

    group: where the help and the documentation list it. searches: those that take it; empty for all.
    families: the model families that take it, for the documentation; a model refuses what it cannot do.
    needs: options of which one must be given. excludes: options that cannot be combined with it. flag: its
    name on the command line, unless that is the field's. alias: other names there. metavar: what its value is
    called there.
    """

    group: Group
    searches: tuple[Search, ...] = ()
    families: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    flag: str | None = None
    alias: tuple[str, ...] = ()
    metavar: str | None = None

    @property
    def decoders(self) -> tuple[str, ...]:
        """Those that take it; empty for all."""
        return decoders_of(self.searches)

    @property
    def heads(self) -> tuple[str, ...]:
        """Those with which it can be used; empty for all."""
        return heads_of(self.searches)

    @property
    def applies_to(self) -> str:
        """The decoders, heads and families that take it, in words; empty for all."""
        kinds = (("decoder", self.decoders), ("head", self.heads), ("model", self.families))
        return ", ".join(f"{kind} {either(names)}" for kind, names in kinds if names)


def option_of(field: FieldInfo) -> Option | None:
    """The declaration of a field; None if it is no option of its own."""
    return next((each for each in field.metadata if isinstance(each, Option)), None)


def declaration_of(model: type[BaseModel], name: str) -> Option | None:
    """The declaration of a model's field, also if a subclass describes it in other words."""
    for kind in model.__mro__:
        field = getattr(kind, "model_fields", {}).get(name)
        option = None if field is None else option_of(field)
        if option is not None:
            return option
    return None


def flag_of(model: type[BaseModel], name: str) -> str:
    """The name of a field's option on the command line."""
    option = declaration_of(model, name)
    return f"--{(option and option.flag) or name.replace('_', '-')}"


def flag_at(model: type[BaseModel], path: Sequence[str]) -> str:
    """The flag of the field at a path, such as `--rescore-weight` of `rescore`, `weight`."""
    flag = f"--{path[0].replace('_', '-')}"
    for part in path:
        if declaration_of(model, part) is None:
            break
        flag, model = flag_of(model, part), model_in(model.model_fields[part]) or model
    return flag


def model_in(field: FieldInfo) -> type[BaseModel] | None:
    """The model that a field holds, as in `GraphSearch | None`."""
    kinds = get_args(field.annotation) or (field.annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def find_refusals(options: BaseModel, also: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """The options that contradict others, each with the reason, in which names of options are in backticks.

    An option with its default value counts as not given. also: options that are given in another form.
    """
    fields = type(options).model_fields

    def is_given(name: str) -> bool:
        return name in also or (name in fields and getattr(options, name) != fields[name].default)

    def value_of(name: str) -> Any:  # noqa: ANN401 - of any type
        return getattr(options, name)

    for name in fields:
        option = declaration_of(type(options), name)
        if option is None or not is_given(name):
            continue
        excluded = [other for other in option.excludes if is_given(other)]
        if option.needs and not any(map(is_given, option.needs)):
            yield name, f"needs {either(f'`{each}`' for each in option.needs)}, which is not set"
        elif option.decoders and value_of("decoder") not in option.decoders:
            yield (
                name,
                f"needs `decoder` {either(option.decoders)}; it does not apply to {value_of('decoder')}",
            )
        elif option.heads and value_of("head") not in ("auto", *option.heads):
            yield name, f"needs `head` {either(option.heads)}; it does not apply to {value_of('head')}"
        elif excluded:
            yield name, f"cannot be combined with `{excluded[0]}`"


def either(names: Iterator[str] | tuple[str, ...]) -> str:
    """The names with commas and `or`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def in_flags(sentence: str, model: type[BaseModel]) -> str:
    """A refusal with the names of the model's options as flags of a command line: those in backticks, and
    that at its beginning, as in `options.nbest: must not exceed ...`."""

    def flag(match: re.Match[str]) -> str:
        return flag_at(model, match[1].split("."))

    return re.sub(r"`(\w+)`", flag, re.sub(r"^options\.([\w.]+)(?=:)", flag, sentence))
