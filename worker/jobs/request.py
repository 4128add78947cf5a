"""The engine request for each chunk of a job, from its options and this worker's settings.

Knows names and where their files are; does not open them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spool.domain.options import JobOptions
from spool.errors import UnknownModel
from spool.settings import Settings
from spool.store.database import Database
from spool.store.jobs import phrases_of
from worker.decode.types import DecodeRequest, SearchOptions
from worker.engine.protocol import NOTHING
from worker.live.feed import LiveFeed
from worker.models.base import SpeechOptions


@dataclass(frozen=True, slots=True)
class JobRequest:
    """`options` are what utterances must have in common to share a batch, `ask` is the job's own. `carries`:
    each chunk goes on from what was heard before it, so they are decoded one after another."""

    options: SearchOptions = field(default_factory=SearchOptions)
    ask: DecodeRequest = NOTHING
    carries: bool = False


def job_request_of(
    options: JobOptions,
    settings: Settings,
    db: Database,
    name: str,
    language_model: Path | None = None,
    reads: Path | None = None,
) -> JobRequest:
    """The request of the job called `name`; `language_model`: the file of one of its project; `reads`: of one
    that rescores. Raises UnknownModel, and NotFound if its phrases are gone."""
    lm = None if language_model is None else str(language_model)
    if options.language_model is not None and lm is None:
        known = settings.language_models
        lm = known.get(options.language_model)
        if lm is None:
            names = ", ".join(sorted(known)) or "none"
            raise UnknownModel(
                f"{name}: no language model {options.language_model!r} here; this worker knows {names}."
            )
    graph = options.graph
    if graph is not None and graph.name not in settings.graphs:
        names = ", ".join(sorted(settings.graphs)) or "none"
        raise UnknownModel(f"{name}: no graph {graph.name!r} here; this worker knows {names}.")
    second, reader = options.rescore, _reader(options, settings, name, reads)
    phrases: tuple[str, ...] = ()
    if options.boost is not None:
        with db.read() as tx:
            phrases = phrases_of(tx, options.boost.sha256)
    ask = DecodeRequest(
        # What is to be prepared is a session; each of its feeds asks for itself.
        step=None if options.live is None else LiveFeed("", 0),
        phrases=phrases,
        boost=1.0 if options.boost is None else options.boost.weight,
        lm=lm,
        alpha=options.lm_weight,
        alternatives=options.alternatives,
        lattice=options.lattice,
        reader_weight=0.0 if second is None else second.weight,
        speech=SpeechOptions(
            language=options.language,
            task=options.task,
            timestamps=options.timestamps,
            prompt=options.prompt,
            hotwords=options.hotwords,
            translate_to=options.translate_to,
            punctuation=options.punctuation,
        ),
    )
    graph_options: dict[str, Any] = {}
    if graph is not None:
        graph_options = graph.model_dump(exclude={"name", "unit_penalty"})
        graph_options |= {"graph": settings.graphs[graph.name], "length_penalty": graph.unit_penalty}
    return JobRequest(
        SearchOptions(
            decoder=options.decoder,
            beam=options.beam,
            nbest=options.nbest,
            lm_blanks=options.lm_blanks,
            pruning=options.pruning,
            scores=options.scores,
            patience=options.patience,
            head=options.head,
            alignments=options.alignments,
            beta=options.beta,
            blank_penalty=options.blank_penalty,
            ctc_weight=options.ctc_weight,
            reverse_weight=options.reverse_weight,
            attention_weight=options.attention_weight,
            transducer_weight=options.transducer_weight,
            search_ctc_weight=options.search_ctc_weight,
            reader=reader,
            att_context=None if options.live is None else options.live.att_context,
            **{"length_penalty": options.length_penalty} | graph_options,
        ),
        ask,
        carries=options.context == "job",
    )


def _reader(options: JobOptions, settings: Settings, name: str, reads: Path | None) -> str | None:
    """What the engine loads the second model by; None where there is none. Raises UnknownModel."""
    if options.rescore is None:
        return None
    reader = settings.models.get(options.rescore.model) if reads is None else str(reads)
    if reader is None:
        names = ", ".join(sorted(settings.models))
        asked = options.rescore.model
        raise UnknownModel(f"{name}: no model {asked!r} to rescore here; this worker knows {names}.")
    return reader
