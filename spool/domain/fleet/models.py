"""What workers know of the models they offer, and which of them call different weights by one name. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model as a worker has it; what it does not know yet is empty.

    sha256: of the weights, hexadecimal. languages: codes; empty for a model that takes none. heads: what a
    search drives, such as `ctc`. streams: whether live sessions can have it.
    """

    family: str = ""
    sha256: str = ""
    languages: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    dtype: str = ""
    heads: tuple[str, ...] = ()
    streams: bool | None = None

    def document(self) -> dict[str, Any]:
        """The facts as JSON."""
        return {name: value for name, value in asdict(self).items() if value not in ("", (), None)}


def facts_of(document: Mapping[str, Any] | None) -> dict[str, ModelFacts]:
    """The facts by model that a worker wrote down; names of fields that are not known here are left out."""
    return {name: _facts(facts) for name, facts in (document or {}).items()}


def _facts(values: Mapping[str, Any]) -> ModelFacts:
    known = {field.name for field in fields(ModelFacts)} & values.keys()
    pairs: dict[str, Any] = {name: values[name] for name in known}
    for name in ("languages", "tasks", "heads"):
        pairs[name] = tuple(pairs.get(name, ()))
    return ModelFacts(**pairs)


def lacks_head(model: str, head: str, workers: Iterable[Mapping[str, ModelFacts]]) -> bool:
    """Whether these workers, by what they know of it, have the model without that head, all that know."""
    known = [facts[model].heads for facts in workers if model in facts and facts[model].heads]
    return bool(known) and not any(head in heads for heads in known)


def can_stream(model: str, workers: Iterable[Mapping[str, ModelFacts]]) -> bool | None:
    """Whether live sessions can have the model on some of these workers; None where none of them knows."""
    known = [facts[model].streams for facts in workers if model in facts and facts[model].streams is not None]
    return any(known) if known else None


def different_weights(model: str, workers: Iterable[tuple[str, Mapping[str, ModelFacts]]]) -> str | None:
    """Which of these workers (name, facts) call different weights `model`, as a sentence; None where those
    that know their weights have the same."""
    by_hash: defaultdict[str, list[str]] = defaultdict(list)
    for name, facts in workers:
        if model in facts and facts[model].sha256:
            by_hash[facts[model].sha256].append(name)
    if len(by_hash) < 2:
        return None
    groups = sorted((sorted(set(names)), digest) for digest, names in by_hash.items())
    listed = "; ".join(f"{', '.join(names)}: {digest[:12]}…" for names, digest in groups)
    return (
        f"Workers call different weights {model} (their SHA-256: {listed}). Give one of them another name in "
        "SPOOL_MODELS, or name a pool whose workers have the same."
    )
