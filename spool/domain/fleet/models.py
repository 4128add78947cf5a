"""What workers know of the models they offer, and which of them use one name for different weights. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnnouncedModel:
    """One model as a worker has it; unknown fields are empty.

    sha256: of the weights, hexadecimal. languages: codes; empty for a model without a choice. heads: what a
    search uses, such as `ctc`. streams: whether live sessions can use it. bits: of quantised weights. bytes:
    of the weights in the worker's memory, once it has loaded them.
    """

    family: str = ""
    sha256: str = ""
    languages: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    dtype: str = ""
    heads: tuple[str, ...] = ()
    streams: bool | None = None
    bits: int | None = None
    bytes: int | None = None


def lacks_head(model: str, head: str, workers: Iterable[Mapping[str, AnnouncedModel]]) -> bool:
    """Whether all of these workers that know the model's heads have it without that head."""
    known = [facts[model].heads for facts in workers if model in facts and facts[model].heads]
    return bool(known) and not any(head in heads for heads in known)


def unknown_languages(
    model: str, codes: Iterable[str], workers: Iterable[Mapping[str, AnnouncedModel]], listed: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Which of these languages the model does not know, and those that it knows: what these workers say, else
    those that are `listed` for it. Nothing is unknown where nobody says anything."""
    told = {code for facts in workers if model in facts for code in facts[model].languages} or set(listed)
    return sorted(set(codes) - told) if told else [], sorted(told)


def choose_with_head(head: str, workers: Iterable[Mapping[str, AnnouncedModel]]) -> str | None:
    """The first model by name that some of these workers have with this head, if possible one whose weights
    are installed; None if there is none."""
    able = {name: facts for models in workers for name, facts in models.items() if head in facts.heads}
    return min(able, key=lambda name: (not able[name].sha256, name), default=None)


def can_stream(model: str, workers: Iterable[Mapping[str, AnnouncedModel]]) -> bool | None:
    """Whether some of these workers can stream the model; None if none of them knows."""
    known = [facts[model].streams for facts in workers if model in facts and facts[model].streams is not None]
    return any(known) if known else None


def different_weights(model: str, workers: Iterable[tuple[str, Mapping[str, AnnouncedModel]]]) -> str | None:
    """Which of these workers (name, facts) use different weights for `model`, as a sentence; None if all
    known weights are the same."""
    by_hash: defaultdict[str, list[str]] = defaultdict(list)
    for name, facts in workers:
        if model in facts and facts[model].sha256:
            by_hash[facts[model].sha256].append(name)
    if len(by_hash) < 2:
        return None
    groups = sorted((sorted(set(names)), digest) for digest, names in by_hash.items())
    listed = "; ".join(f"{', '.join(names)}: {digest[:12]}…" for names, digest in groups)
    return (
        f"Workers have different weights under the name {model} (SHA-256: {listed}). Rename one of them in "
        "SPOOL_MODELS, or name a pool whose workers have the same."
    )
