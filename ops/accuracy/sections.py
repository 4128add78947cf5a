"""The sections of the document: each is measured and written as Markdown."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ops.accuracy import calibration, recordings, tables
from ops.accuracy.measure import Heard, Way, difference, errors_of, heard_by
from ops.accuracy.ways import BASE, BEAM, GREEDY, OPEN
from ops.train.run.evaluate import Sets, Utterance
from spool.wer import WordErrors
from worker.models.nemo.model import NemoModel

Found = dict[str, dict[str, Heard]]  # by way, by set
LENGTHS = (10, 20, 30, 40)
FEW = 16  # utterances of a set where each is heard in a batch of its own, or in bfloat16


def listen(model: NemoModel, sets: Sets, ways: Sequence[Way]) -> Found:
    """Every set by every way."""
    found: Found = {way.name: {} for way in ways}
    for name, utterances in sets.items():
        began = time.monotonic()
        for way, heard in heard_by(model, utterances, ways).items():
            found[way][name] = heard
        print(f"{name}: {len(utterances)} utterances, {time.monotonic() - began:.0f} s", flush=True)
    return found


def groups(sets: Sets) -> dict[str, list[str]]:
    """The sets by what is hard about them."""
    found: dict[str, list[str]] = {}
    for name in sets:
        kind = "open speech" if name in OPEN else name if name == "synthetic" else "digits and words"
        found.setdefault(kind, []).append(name)
    return found


def decoding(found: Found, sets: Sets) -> list[str]:
    """Error rates by way and set, and how sure each way's difference from the greedy one is."""
    errors = {way: {n: errors_of(each[n], sets[n]) for n in sets} for way, each in found.items()}
    kinds = groups(sets)
    rows = []
    for way in errors:
        if way != BASE:
            pairs = [
                [[e for n in names for e in errors[w][n]] for w in (way, BASE)] for names in kinds.values()
            ]
            rows.append([way, *(tables.points(difference(ours, base)) for ours, base in pairs)])
    return [
        "\n## Ways of decoding\n",
        tables.by_way(errors, list(errors), list(sets)),
        "\n## Are the differences sure?\n",
        f"Points of WER against {BASE}, their 95 % interval (paired bootstrap over utterances), bold",
        "where it leaves out none at all.\n",
        tables.table(["", *kinds], rows),
    ]


def sameness(model: NemoModel, half: NemoModel, found: Found, sets: Sets) -> list[str]:
    """What must change no words, and what bfloat16 changes."""
    few = {name: each[:FEW] for name, each in sets.items()}
    single = {name: _one_by_one(model, each) for name, each in few.items()}
    together = _in_one_batch(model, few)
    halved = listen(half, few, [Way(BASE, GREEDY), Way("TDT beam 4", BEAM)])
    rows = [
        [f"fixed scores against float, {way}", _different(found[f"{way}, fixed scores"], found[way], sets)]
        for way in (BASE, "TDT beam 4")
    ]
    rows.append(
        [f"alone against {sum(map(len, few.values()))} in batches of 64", _different(single, together, few)]
    )
    shifts = []
    for way in (BASE, "TDT beam 4"):
        rows.append([f"bfloat16 against float32, {way}", _different(halved[way], found[way], few)])
        half_errors, full_errors = (
            [e for n in few for e in errors_of(each[way][n], few[n])] for each in (halved, found)
        )
        shifts.append([f"bfloat16 less float32, {way}", tables.points(difference(half_errors, full_errors))])
    return [
        "\n## What should change nothing\n",
        tables.table(["", "utterances with other words"], rows),
        "",
        tables.table(["", "points of WER"], shifts),
    ]


def _different(one: Mapping[str, Heard], other: Mapping[str, Heard], sets: Sets) -> str:
    pairs = [(one[n].text(k), other[n].text(k)) for n in sets for k in range(len(sets[n]))]
    return f"{sum(a != b for a, b in pairs)} of {len(pairs)}"


def _one_by_one(model: NemoModel, utterances: Sequence[Utterance]) -> Heard:
    return Heard([heard_by(model, [u], [Way(BASE, GREEDY)])[BASE].words[0] for u in utterances])


def _in_one_batch(model: NemoModel, sets: Sets) -> dict[str, Heard]:
    """Utterances of all sets, 64 at once."""
    places = [(name, k) for name in sets for k in range(len(sets[name]))]
    found = {name: Heard([[] for _ in each]) for name, each in sets.items()}
    for start in range(0, len(places), 64):
        part = places[start : start + 64]
        heard = heard_by(model, [sets[n][k] for n, k in part], [Way(BASE, GREEDY)], whole=True)[BASE]
        for (name, k), words in zip(part, heard.words, strict=True):
            found[name].words[k] = words
    return found


def long_ones(model: NemoModel, speech: Path) -> list[str]:
    """Long recordings by length of chunks, and what happens at seams."""
    found: dict[str, dict[str, recordings.Outcome]] = {}
    cut: dict[str, tuple[WordErrors, WordErrors]] = {}
    for recording in recordings.recordings(speech):
        began = time.monotonic()
        for longest in LENGTHS:
            outcome = recordings.through(model, recording, GREEDY, longest)
            found.setdefault(str(longest), {})[recording.name] = outcome
        single, joined = (recordings.cut_at_segments(model, recording, GREEDY, s) for s in (0.0, 25.0))
        cut[recording.name] = single, joined
        print(f"{recording.name}: {time.monotonic() - began:.0f} s", flush=True)
    return [
        "\n## Long recordings\n",
        tables.by_length(found, cut),
        "\n## Seams, chunks of at most 30 s\n",
        tables.at_seams(found["30"]),
    ]


def confidence(heard: Mapping[str, Heard], sets: Sets, plot: str) -> tuple[list[str], str]:
    """Calibration of the words of each group of sets: its section, and the plot it shows as `plot`, SVG."""
    curves = {}
    for kind, names in groups(sets).items():
        sure: list[float] = []
        good: list[bool] = []
        for utterance, words in [(u, w) for n in names for u, w in zip(sets[n], heard[n].words, strict=True)]:
            sure += [word.confidence for word in words]
            good += calibration.right(utterance.text, words)
        curves[kind] = calibration.bins(sure, good)
    section = ["\n## Confidence\n", tables.calibration(curves)]
    return [
        *section,
        f"\n![Share of words that are right over their confidence]({plot})\n",
    ], calibration.reliability_plot(curves)
