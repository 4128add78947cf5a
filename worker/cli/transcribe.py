"""`spool-worker transcribe`: the engine with no queue.

Knows options, printing and the exit code; `worker.local.transcribe` does the work.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from spool.domain.transcript import language_of_text
from spool.errors import InvalidRequest
from worker.cli.options import (
    AcousticScale,
    Alignments,
    AlignmentsName,
    Alternatives,
    AttContext,
    Beam,
    Beta,
    BlankSkip,
    Boost,
    BoostFile,
    BoostWeight,
    Context,
    ContextName,
    CtcWeight,
    Decoder,
    DecoderName,
    Detector,
    Diarize,
    Files,
    Format,
    FormatName,
    GraphBeam,
    GraphFile,
    Head,
    HeadName,
    Hotwords,
    Language,
    LanguageModel,
    LatticeBeam,
    LatticeForm,
    LatticeName,
    LengthPenalty,
    LmBlanks,
    LmWeight,
    MaxActive,
    Model,
    Nbest,
    Patience,
    Prompt,
    Prune,
    Pruning,
    PruningName,
    Punctuation,
    ReverseWeight,
    Scores,
    ScoresName,
    Split,
    Task,
    Timestamps,
    TimestampsName,
    TranslateTo,
)
from worker.cli.speakers import LeastSpeakers, MostSpeakers, SpeakerCount, diarization_of
from worker.decode.types import DecodeRequest, FusionOptions, SearchOptions
from worker.local.report import render_results
from worker.machine.blas import preload_blas
from worker.models.base import SpeechOptions

PRUNE = 5.0


def transcribe(
    files: Files,
    model: Model,
    decoder: Decoder = DecoderName.greedy,
    beam: Beam = 4,
    nbest: Nbest = 1,
    head: Head = HeadName.auto,
    beta: Beta = 0.0,
    scores: Scores = ScoresName.float,
    alternatives: Alternatives = 0,
    lattice: LatticeForm = None,
    prune: Prune = None,
    lm: LanguageModel = None,
    alpha: LmWeight = 0.3,
    lm_blanks: LmBlanks = False,
    boost: Boost = None,
    boost_file: BoostFile = None,
    boost_weight: BoostWeight = 1.0,
    pruning: Pruning = PruningName.late,
    context: Context = ContextName.chunk,
    alignments: Alignments = AlignmentsName.auto,
    ctc_weight: CtcWeight = None,
    reverse_weight: ReverseWeight = None,
    patience: Patience = 1.0,
    length_penalty: LengthPenalty = None,
    att_context: AttContext = None,
    graph: GraphFile = None,
    graph_beam: GraphBeam = 16.0,
    max_active: MaxActive = 7000,
    lattice_beam: LatticeBeam = 10.0,
    blank_skip: BlankSkip = 1.0,
    acoustic_scale: AcousticScale = 1.0,
    language: Language = None,
    task: Task = "transcribe",
    translate_to: TranslateTo = None,
    punctuation: Punctuation = True,
    timestamps: Timestamps = TimestampsName.auto,
    prompt: Prompt = "",
    hotwords: Hotwords = "",
    chunk: Split = True,
    speech_detector: Detector = True,
    diarize: Diarize = False,
    speakers: SpeakerCount = None,
    min_speakers: LeastSpeakers = None,
    max_speakers: MostSpeakers = None,
    form: Format = FormatName.json,
) -> None:
    """Transcribe files without a queue. A file that fails stops no other; the exit code is then 1."""
    given = dict(locals())
    # The BLAS must be there before MLX, which comes in with worker.local.transcribe.
    preload_blas()
    from worker.local.transcribe import transcribe_files

    phrases = (*(boost or ()), *_phrases(boost_file))
    fusion = FusionOptions(
        None if lm is None else str(lm), alpha, lm_blanks, phrases, boost_weight, pruning.value
    )
    options = _search_options(given, fusion)
    codes = language_of_text(language)
    speech = SpeechOptions(
        codes, task, timestamps.value, prompt, hotwords, translate_to=translate_to, punctuation=punctuation
    )
    ask = DecodeRequest(alternatives=alternatives, lattice=_reach(form, lattice, prune), speech=speech)
    how = {"chunk": chunk, "carries": context is ContextName.job, "detector": speech_detector}
    counts = (speakers, min_speakers, max_speakers)
    diarization = diarization_of(*counts) if diarize or form is FormatName.rttm or any(counts) else None
    results = transcribe_files(files, model, options, ask=ask, diarization=diarization, **how)
    typer.echo(render_results(results, form.value, lattice and lattice.value))
    if any(result.error for result in results):
        raise typer.Exit(1)


def _search_options(given: Mapping[str, Any], fusion: FusionOptions) -> SearchOptions:
    """Of the command's options by name those of the search. Raises InvalidRequest."""
    values = {each.name: given[each.name] for each in fields(SearchOptions) if each.name in given}
    values |= {name: value.value for name, value in values.items() if isinstance(value, Enum)}
    values |= {
        "graph": given["graph"] and str(given["graph"]),
        "att_context": context_of(given["att_context"]),
    }
    return SearchOptions(**values, fusion=fusion if fusion.asks else None)


def _reach(form: FormatName, lattice: LatticeName | None, prune: float | None) -> float | None:
    """The pruning beam of lattices, None if there are to be none. Raises InvalidRequest."""
    alone = form in (FormatName.lattice, FormatName.kaldi)
    if lattice is not None and form is not FormatName.json:
        raise InvalidRequest("--lattice needs --format json; --format lattice or kaldi prints lattices alone")
    if lattice is None and not alone:
        if prune is not None:
            raise InvalidRequest("--prune needs --lattice, or --format lattice or kaldi")
        return None
    return PRUNE if prune is None else prune


def context_of(text: str | None) -> tuple[int, int] | None:
    """The pair of frames that `--att-context` gives. Raises InvalidRequest."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(-?\d+)\s*,\s*(-?\d+)\s*", text)
    if match is None:
        raise InvalidRequest(f"--att-context {text!r} must have the form LEFT,RIGHT, such as 70,13")
    return int(match[1]), int(match[2])


def _phrases(path: Path | None) -> tuple[str, ...]:
    """The lines of a text file. Raises InvalidRequest."""
    if path is None:
        return ()
    try:
        return tuple(line for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: not UTF-8 text") from error
    except OSError as error:
        raise InvalidRequest(f"{path}: the phrases cannot be read: {error.strerror}") from error
