"""Options of `spool-worker transcribe`: dataclasses whose fields are the options."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import typer

from spool.command_options import read_phrases
from spool.domain.archive.diarization import Diarization
from spool.domain.transcript import language_of_text
from spool.errors import InvalidRequest
from spool.formats import TextFormat
from worker.cli.speakers import LeastSpeakers, MostSpeakers, SpeakerCount, diarization_of
from worker.decode.types import Alignments, Decoder, Head, Pruning, Scores, SearchOptions
from worker.models.base import SpeechOptions

LATTICE_BEAM = 5.0


@dataclass(frozen=True, slots=True)
class Search:
    """How to search; the fields have the names of those of `SearchOptions`."""

    decoder: Annotated[
        Decoder,
        typer.Option(
            help="Search method. With Whisper, beam with --beam 5 makes fewer errors than greedy and takes "
            "longer."
        ),
    ] = "greedy"
    beam: Annotated[int, typer.Option(min=1, help="Beam width.")] = 4
    nbest: Annotated[int, typer.Option(min=1, help="Number of hypotheses to report.")] = 1
    head: Annotated[
        Head, typer.Option(help="Head to search. auto prefers TDT, then RNNT, CTC, attention.")
    ] = "auto"
    beta: Annotated[float, typer.Option(help="Bonus for each token in the beam search of a CTC head.")] = 0.0
    blank_penalty: Annotated[
        float, typer.Option(min=0, help="Subtracted from the blank's logit of a CTC head.")
    ] = 0.0
    scores: Annotated[Scores, typer.Option(help="Sum scores in float32 or in Q16.16 fixed point.")] = "float"
    alignments: Annotated[
        Alignments,
        typer.Option(
            help="Score a hypothesis of a CTC beam by its best alignment or by the sum over all. auto does "
            "what the model's own tools do."
        ),
    ] = "auto"
    ctc_weight: Annotated[
        float | None,
        typer.Option(
            help="Weight of the CTC score in rescoring (default 0.5), or in a WeNet transducer's beam "
            "(default 0); with --head rnnt --decoder rescore, of that beam's score (default 0)."
        ),
    ] = None
    reverse_weight: Annotated[
        float | None, typer.Option(help="Weight of the right-to-left decoder in rescoring. Default: 0.")
    ] = None
    attention_weight: Annotated[
        float,
        typer.Option(min=0, help="Weight of the attention decoders in rescoring; 0 leaves them out."),
    ] = 1.0
    transducer_weight: Annotated[
        float,
        typer.Option(
            help="Weight of the transducer's log-likelihood over all alignments, with --head rnnt --decoder "
            "rescore."
        ),
    ] = 0.0
    search_ctc_weight: Annotated[
        float,
        typer.Option(
            min=0, help="Weight of the CTC head in the transducer's beam, with --head rnnt --decoder rescore."
        ),
    ] = 0.0
    patience: Annotated[
        float, typer.Option(help="Stop the beam at beam x patience finished hypotheses (attention decoders).")
    ] = 1.0
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help="Rank hypotheses by score / ((5 + tokens) / 6)^alpha with this alpha. Default: by mean "
            "score (Whisper) or by score (Canary). With --decoder attention: by score / tokens^alpha "
            "(default 0). With a graph: added to the cost of each unit (default 0)."
        ),
    ] = None
    att_context: Annotated[
        str | None,
        typer.Option(
            metavar="LEFT,RIGHT",
            help="Attention context of a cache-aware model, in encoder frames, such as 70,13. "
            "Default: the model's first.",
        ),
    ] = None

    graph: Annotated[
        Path | None,
        typer.Option(
            help="Decoding graph of `spool graph build`, for --decoder wfst; rescore then orders its list."
        ),
    ] = None
    graph_beam: Annotated[
        float, typer.Option(help="Pruning beam of the graph's search, in natural logarithm.")
    ] = 16.0
    max_active: Annotated[
        int, typer.Option(min=1, help="The most states of the graph that are kept after a frame.")
    ] = 7000
    lattice_beam: Annotated[
        float, typer.Option(help="How much worse than the best a hypothesis of the graph's search may score.")
    ] = 10.0
    blank_skip: Annotated[
        float, typer.Option(help="With a graph, do not search frames whose blank is more probable than this.")
    ] = 1.0
    acoustic_scale: Annotated[
        float, typer.Option(help="Weight of the model's log-probabilities against the graph's costs.")
    ] = 1.0

    def to_options(self) -> SearchOptions:
        """The same for the engine. Raises InvalidRequest."""
        if self.decoder == "greedy" and self.nbest > 1:
            raise InvalidRequest("--nbest: the greedy decoder keeps one hypothesis; use --decoder beam")
        if self.decoder != "greedy" and self.nbest > self.beam:
            raise InvalidRequest(f"--nbest must not be more than --beam, which is {self.beam}")
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given |= {"att_context": context_of(self.att_context), "graph": self.graph and str(self.graph)}
        return SearchOptions(**given)


@dataclass(frozen=True, slots=True)
class Fusion:
    """Language model and phrases."""

    lm: Annotated[
        Path | None, typer.Option(help="ARPA file of an n-gram language model over the model's tokens.")
    ] = None
    alpha: Annotated[float, typer.Option(help="Weight of the language model.")] = 0.3
    lm_blanks: Annotated[
        bool, typer.Option("--lm-blanks", help="Apply the language model to blanks too.")
    ] = False
    boost: Annotated[
        list[str] | None, typer.Option(metavar="PHRASE", help="Phrase to boost; repeat for several.")
    ] = None
    boost_file: Annotated[Path | None, typer.Option(help="File of phrases to boost, one per line.")] = None
    boost_weight: Annotated[float, typer.Option(help="Weight of boosted phrases.")] = 1.0
    pruning: Annotated[
        Pruning, typer.Option(help="Fuse before the beam is pruned (late) or after (early).")
    ] = "late"
    context: Annotated[
        Literal["chunk", "job"],
        typer.Option(help="Reset language model and phrases at each chunk, or carry them through the file."),
    ] = "chunk"

    def phrases(self) -> tuple[str, ...]:
        """All phrases, those of the file last. Raises InvalidRequest."""
        return (*(self.boost or ()), *read_phrases(self.boost_file))


@dataclass(frozen=True, slots=True)
class Speech:
    """Options of models with an attention decoder."""

    language: Annotated[
        str | None,
        typer.Option(
            help="Language spoken, such as en; en,de chooses among these. Default: auto (detect it)."
        ),
    ] = None
    task: Annotated[
        Literal["transcribe", "translate"],
        typer.Option(help="Transcribe, or translate (into English by default)."),
    ] = "transcribe"
    translate_to: Annotated[
        str | None, typer.Option(help="Language to translate into, such as de (Canary). Default: English.")
    ] = None
    punctuation: Annotated[bool, typer.Option(help="Write punctuation and capitals (Canary).")] = True
    timestamps: Annotated[
        Literal["auto", "on", "off"],
        typer.Option(
            help="Decode with timestamp tokens (attention decoders); auto decodes with and without."
        ),
    ] = "auto"
    prompt: Annotated[
        str,
        typer.Option(
            help="Text that precedes the recording; for Canary also its prompt slots as a JSON object."
        ),
    ] = ""
    hotwords: Annotated[str, typer.Option(help="Words to expect (attention decoders).")] = ""

    def to_options(self) -> SpeechOptions:
        """The same for the engine. Raises InvalidRequest."""
        return SpeechOptions(
            language_of_text(self.language),
            self.task,
            self.timestamps,
            self.prompt,
            self.hotwords,
            translate_to=self.translate_to,
            punctuation=self.punctuation,
        )


@dataclass(frozen=True, slots=True)
class Speakers:
    """Who speaks."""

    diarize: Annotated[
        bool,
        typer.Option("--diarize", help="Tell speakers apart. --speakers and --format rttm imply it."),
    ] = False
    diarizer: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="Model that tells speakers apart: default, or a Sortformer (sortformer, a name in the "
            "catalogue, or a .nemo file). Implies --diarize.",
        ),
    ] = "default"
    speakers: SpeakerCount = None
    min_speakers: LeastSpeakers = None
    max_speakers: MostSpeakers = None

    def to_diarization(self, form: TextFormat) -> Diarization | None:
        """The requested diarization, None if there is none. Raises InvalidRequest."""
        counts = (self.speakers, self.min_speakers, self.max_speakers)
        is_requested = self.diarize or form == "rttm" or any(counts) or self.diarizer != "default"
        return diarization_of(*counts) if is_requested else None


@dataclass(frozen=True, slots=True)
class Output:
    """What is printed."""

    alternatives: Annotated[
        int, typer.Option(min=0, help="Number of alternatives to report for each word.")
    ] = 0
    lattice: Annotated[
        Literal["json", "kaldi"] | None,
        typer.Option(
            help="Add the lattice of each chunk to the JSON. --format lattice or kaldi prints lattices alone."
        ),
    ] = None
    prune: Annotated[
        float | None,
        typer.Option(min=0, help="Pruning beam of lattices, in natural logarithm. Default: 5."),
    ] = None
    form: Annotated[TextFormat, typer.Option("--format", help="Output format.")] = "json"

    def lattice_beam(self) -> float | None:
        """The pruning beam of lattices, None if none are requested. Raises InvalidRequest."""
        if self.lattice is not None and self.form != "json":
            raise InvalidRequest(
                "--lattice needs --format json; --format lattice or kaldi prints lattices alone"
            )
        if self.lattice is None and self.form not in ("lattice", "kaldi"):
            if self.prune is not None:
                raise InvalidRequest("--prune needs --lattice, or --format lattice or kaldi")
            return None
        return LATTICE_BEAM if self.prune is None else self.prune


def context_of(text: str | None) -> tuple[int, int] | None:
    """The pair of frames that `--att-context` gives. Raises InvalidRequest."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(-?\d+)\s*,\s*(-?\d+)\s*", text)
    if match is None:
        raise InvalidRequest(f"--att-context {text!r} must have the form LEFT,RIGHT, such as 70,13")
    return int(match[1]), int(match[2])
