"""`spool-worker transcribe`: the engine with no queue.

Knows options, printing and the exit code; `worker.local.transcribe` does the work.
"""

import re
from pathlib import Path

import typer

from spool.domain.transcript import language_of_text
from spool.errors import InvalidRequest
from worker.cli.options import (
    Alignments,
    AlignmentsName,
    Alternatives,
    AttContext,
    Beam,
    Beta,
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
    Diarizer,
    Files,
    Format,
    FormatName,
    Head,
    HeadName,
    Hotwords,
    Language,
    LanguageModel,
    LatticeForm,
    LatticeName,
    LengthPenalty,
    LmBlanks,
    LmWeight,
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
    diarizer: Diarizer = "default",
    speakers: SpeakerCount = None,
    min_speakers: LeastSpeakers = None,
    max_speakers: MostSpeakers = None,
    form: Format = FormatName.json,
) -> None:
    """Transcribe files without a queue. A file that fails stops no other; the exit code is then 1."""
    # The BLAS must be there before MLX, which comes in with worker.local.transcribe.
    preload_blas()
    from worker.local.transcribe import transcribe_files

    phrases = (*(boost or ()), *_phrases(boost_file))
    fusion = FusionOptions(
        None if lm is None else str(lm), alpha, lm_blanks, phrases, boost_weight, pruning.value
    )
    options = SearchOptions(
        decoder=decoder.value,
        beam=beam,
        nbest=nbest,
        head=head.value,
        beta=beta,
        scores=scores.value,
        patience=patience,
        length_penalty=length_penalty,
        alignments=alignments.value,
        ctc_weight=ctc_weight,
        reverse_weight=reverse_weight,
        att_context=context_of(att_context),
        fusion=fusion if fusion.asks else None,
    )
    codes = language_of_text(language)
    speech = SpeechOptions(
        codes, task, timestamps.value, prompt, hotwords, translate_to=translate_to, punctuation=punctuation
    )
    ask = DecodeRequest(alternatives=alternatives, lattice=_reach(form, lattice, prune), speech=speech)
    how = {"chunk": chunk, "carries": context is ContextName.job, "detector": speech_detector}
    counts = (speakers, min_speakers, max_speakers)
    asked = diarize or form is FormatName.rttm or any(counts) or diarizer != "default"
    diarization = diarization_of(*counts) if asked else None
    results = transcribe_files(
        files, model, options, ask=ask, diarization=diarization, diarizer=diarizer, **how
    )
    typer.echo(render_results(results, form.value, lattice and lattice.value))
    if any(result.error for result in results):
        raise typer.Exit(1)


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
