"""Written by `python -m ops.command_line` from `spool/domain/options.py`: change options there."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Options(TypedDict, total=False):
    """How to transcribe; omitted options have the server's defaults. `docs/api.md` describes each."""

    align: Mapping[str, Any] | None
    model: str
    language: str | Sequence[str] | None
    alternatives: int
    lattice: float | None
    task: Literal["transcribe", "translate"]
    translate_to: str | None
    punctuation: bool
    timestamps: Literal["auto", "on", "off"]
    prompt: str
    hotwords: str
    audio_context: Literal["sound", "full"]
    language_model: str | None
    lm_weight: float
    decoder: Literal["greedy", "beam", "rescore", "attention", "wfst"]
    beam: int
    head: Literal["auto", "tdt", "rnnt", "ctc", "attention"]
    nbest: int
    max_symbols: int | None
    alignments: Literal["auto", "best", "all"]
    beta: float
    blank_penalty: float
    ctc_weight: float | None
    attention_weight: float
    reverse_weight: float | None
    transducer_weight: float
    search_ctc_weight: float
    patience: float
    length_penalty: float | None
    scores: Literal["float", "fixed"]
    graph: Mapping[str, Any] | None
    lm_blanks: bool
    pruning: Literal["late", "early"]
    rescore: Mapping[str, Any] | None
    context: Literal["chunk", "job"]
    channels: Literal["mix", "separate"]
    speech_detector: bool
    on_truncated: Literal["transcribe", "fail"]
    witness: bool
    drop_unsupported: bool
    verbatim: Literal["keep", "mark", "omit"]
    diarization: Mapping[str, Any] | None
    boost: Mapping[str, Any] | None
