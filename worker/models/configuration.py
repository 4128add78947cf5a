"""Reads a model's configuration: sections of JSON or YAML, and settings that are refused by their names.

Knows no family and no setting.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from spool.errors import ModelUnreadable

CONFIG_BYTES_MAX = 16 << 20
SIZE_MAX = 1 << 16  # of any one dimension: beyond it a configuration is broken, not large
COUNTS, COUNT_MAX = ("vocab_size", "max_position_embeddings"), 1 << 20  # of rows that are looked up

Config = TypeVar("Config")
Tree = Mapping[str, Any]


def parse_tree(raw: bytes, name: str) -> Tree:
    """The sections of a configuration; JSON is tried first, then YAML (safe loader: data alone)."""
    if len(raw) > CONFIG_BYTES_MAX:
        raise ModelUnreadable(f"{name}: a configuration of {len(raw)} bytes is no model's configuration")
    try:
        tree = json.loads(raw) if raw.lstrip().startswith(b"{") else yaml.safe_load(raw)
    except (ValueError, yaml.YAMLError, RecursionError) as cause:
        raise ModelUnreadable(f"{name}: not a readable configuration: {cause}") from cause
    if not isinstance(tree, Mapping):
        raise ModelUnreadable(f"{name}: a model's configuration is a mapping, this is not")
    return tree


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object. Raises ModelUnreadable."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as cause:
        raise ModelUnreadable(f"{path}: not readable as JSON: {cause}") from cause
    if not isinstance(value, dict):
        raise ModelUnreadable(f"{path}: holds no JSON object")
    return value


def build_config(raw: bytes, name: str, build: Callable[[Tree], Config]) -> Config:
    """What `build` makes of a configuration's sections. Raises ModelUnreadable naming the file and the
    cause."""
    tree = parse_tree(raw, name)
    with in_file(name):
        return build(tree)


@contextmanager
def in_file(name: object) -> Iterator[None]:
    """Whatever is wrong with a configuration inside is raised as ModelUnreadable naming the file."""
    try:
        yield
    except ModelUnreadable as cause:
        raise ModelUnreadable(f"{name}: {cause.message}") from cause
    except (TypeError, ValueError, KeyError, AttributeError) as cause:
        raise ModelUnreadable(f"{name}: a setting is missing or of the wrong kind: {cause}") from cause


def require(name: str, value: object, *allowed: object) -> None:
    """Raises ModelUnreadable, naming the setting, where its value is none of those allowed."""
    if value not in allowed:
        choices = " or ".join(repr(choice) for choice in allowed)
        raise ModelUnreadable(f"{name} is {value!r}; this engine computes {choices}")


def require_size(name: str, value: object, most: int = SIZE_MAX) -> int:
    """The value, a size of at least 1. Raises ModelUnreadable, naming the setting."""
    if type(value) is not int or not 1 <= value <= most:
        raise ModelUnreadable(f"{name} is {value!r}, not a size of 1 to {most}")
    return value


def require_number(name: str, value: object, *, least: float = 0.0) -> float:
    """The value, a finite number above `least`. Raises ModelUnreadable, naming the setting."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < float("inf"):
        raise ModelUnreadable(f"{name} is {value!r}, not a number above {least:g}")
    return float(value)


def require_tokens(name: str, value: object) -> tuple[int, ...]:
    """The tokens of a setting that has one or a list of them. Raises ModelUnreadable, naming it."""
    tokens = tuple(value) if isinstance(value, list) else (value,)
    if not tokens or not all(type(token) is int and token >= 0 for token in tokens):
        raise ModelUnreadable(f"{name} is {value!r}, not a token or a list of them")
    return tokens


def require_multiple(name: str, value: int, *parts: int) -> None:
    """Raises ModelUnreadable, naming the setting, where its value is no multiple of these."""
    for part in parts:
        if value % part:
            raise ModelUnreadable(f"{name} is {value}, no multiple of {part}")


def section_of(tree: Tree, name: str, default: Tree | None = None) -> Tree:
    """A section of a configuration; `default` where it has none. Raises ModelUnreadable, naming it."""
    value = tree.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, Mapping):
        raise ModelUnreadable(f"{name} is {value!r}, not a section of settings")
    return value


def build_sizes(kind: type[Config], name: str, tree: Tree) -> Config:
    """A dataclass of sizes from the section `name`, its defaults for those that are missing. Raises
    ModelUnreadable, naming the setting."""
    return kind(
        **{
            size: require_size(f"{name}.{size}", tree[size], COUNT_MAX if size in COUNTS else SIZE_MAX)
            for size in (each.name for each in fields(kind))  # type: ignore[arg-type]
            if size in tree
        }
    )


def require_sections(tree: Tree, *names: str) -> None:
    """Raises ModelUnreadable, naming the first of these sections that a configuration lacks."""
    for name in names:
        if not isinstance(tree.get(name), Mapping):
            raise ModelUnreadable(f"the configuration has no section `{name}`")


def build_transformer(kind: type[Config], name: str, tree: Tree) -> Config:
    """A dataclass of sizes from NeMo's section `name` of a transformer, whose width is divided among its
    heads. Raises ModelUnreadable."""
    sizes = {each.name: require_size(f"{name}.{each.name}", tree[each.name]) for each in fields(kind)}  # type: ignore[arg-type]
    width, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    if width % heads:
        raise ModelUnreadable(f"{name}.hidden_size {width} is no multiple of num_attention_heads {heads}")
    return kind(**sizes)
