"""The ways of decoding that are compared, and the sets they are compared on.

Knows search options and the speech folder; measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ops.accuracy.measure import Asks, Way
from ops.train.data.features import read_audio
from ops.train.data.prepare import manifest
from ops.train.data.texts import Sentences
from ops.train.run.evaluate import SEED, Sets, Utterance, recorded
from worker.decode.fusion.arpa import write_arpa
from worker.decode.fusion.estimate import estimate
from worker.models.requests import DecodeRequest, SearchOptions

ORDER = 4
DISCOUNTS = (0.75, 0.75, 0.75)  # plain Kneser-Ney, with which the documented figures were taken
PROSE = 12_000  # lines beside the transcripts: more take minutes to read
LEAST_LETTERS = 4  # of a word that is boosted: nobody lists "the"
OTHERS = 50
BASE = "TDT greedy"
GREEDY = SearchOptions(head="tdt")
BEAM = SearchOptions(decoder="beam", beam=4, head="tdt")
CTC = SearchOptions(head="ctc")
CTC_BEAM = SearchOptions(decoder="beam", beam=4, head="ctc")
OPEN = ("open, read", "open, non-native", "open, other")


def sampled(speech: Path, synthetic: Path | None, most: int) -> Sets:
    """The sets of `ops.train.run.evaluate`, at most that many utterances of each, drawn with a fixed seed."""
    sets = dict(recorded(speech))
    if synthetic is not None:
        rows = manifest(synthetic)
        sets["synthetic"] = [Utterance(read_audio(synthetic / row["path"]), row["text"]) for row in rows]
    rng = np.random.default_rng(SEED)
    return {name: [each[i] for i in rng.permutation(len(each))[:most]] for name, each in sorted(sets.items())}


def training_text(speech: Path) -> list[str]:
    """The texts of the training set: transcripts, and synthetic speech's prose where Debian's packages
    are."""
    rows = manifest(speech)
    told = [row["text"] for row in rows if row["split"] == "train"]
    held = {row["text"] for row in rows if row["split"] != "train"}
    prose = Sentences(told, held).prose
    drawn = np.random.default_rng(SEED).permutation(len(prose))[:PROSE]
    return told + [prose[i] for i in drawn]


def language_model(
    path: Path, lines: Sequence[str], encode: Callable[[str], list[int]], pieces: Sequence[str]
) -> int:
    """Writes the lines' n-gram model of pieces; gives how many n-grams it has."""
    grams = estimate(map(encode, lines), len(pieces), ORDER, DISCOUNTS)
    return write_arpa(path, grams.order, grams.probabilities, grams.backoffs, pieces)


def own_words(utterance: Utterance) -> tuple[str, ...]:
    """The words somebody who knows the file would list: each of four letters and more."""
    return tuple(sorted({word for word in utterance.text.split() if len(word) >= LEAST_LETTERS}))


def boosting(boost: float, others: Sequence[str] = ()) -> Asks:
    """Asks for the words that the file holds, and for others that it doesn't."""

    def asks(utterance: Utterance) -> DecodeRequest:
        words = own_words(utterance)
        rng = np.random.default_rng(len(utterance.audio))
        drawn = rng.choice(others, OTHERS, replace=False).tolist() if len(others) else []
        return DecodeRequest(phrases=tuple(dict.fromkeys([*words, *drawn])), boost=boost)

    return asks


def with_model(lm: Path, alpha: float) -> Asks:
    """Asks for the language model."""
    return lambda _: DecodeRequest(language_model=str(lm), lm_weight=alpha)


def all_ways(lm: Path, vocabulary: Sequence[str]) -> list[Way]:
    """Every way but those that need another model in memory (bfloat16) or other batches."""
    beams = [Way(f"TDT beam {k}", BEAM.model_copy(update={"beam": k})) for k in (2, 4, 8, 16)]
    ctc = [
        Way("CTC greedy", CTC),
        Way("CTC beam 4", CTC_BEAM),
        Way("CTC beam 16", CTC_BEAM.model_copy(update={"beam": 16})),
    ]
    fusions = [
        Way("TDT beam 4, LM 0.2", BEAM, with_model(lm, 0.2)),
        Way("TDT beam 4, LM 0.4", BEAM, with_model(lm, 0.4)),
        Way("CTC beam 4, LM 0.4", CTC_BEAM, with_model(lm, 0.4)),
        Way("TDT greedy, its words boosted", GREEDY, boosting(1.0)),
        Way("TDT beam 4, its words boosted", BEAM, boosting(1.0)),
        Way(f"TDT beam 4, its words and {OTHERS} others", BEAM, boosting(1.0, vocabulary)),
    ]
    fixed = [
        Way("TDT greedy, fixed scores", GREEDY.model_copy(update={"scores": "fixed"})),
        Way("TDT beam 4, fixed scores", BEAM.model_copy(update={"scores": "fixed"})),
    ]
    return [Way(BASE, GREEDY), *beams, *ctc, *fusions, *fixed]
