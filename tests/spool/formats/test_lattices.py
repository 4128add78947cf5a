"""Lattices as JSON and as a Kaldi archive, which a small reader of that format takes apart again."""

import json
from dataclasses import dataclass

import pytest

from spool.domain import (
    Alternative,
    AudioFacts,
    Coverage,
    Lattice,
    LatticeArc,
    LatticeEnd,
    ModelFacts,
    Transcript,
    Word,
)
from spool.errors import NotFound
from spool.formats import render

FRAME = 0.08


def arc(source: int, target: int, word: str, start: float, end: float, acoustic: float) -> LatticeArc:
    return LatticeArc(
        source=source,
        target=target,
        word=word,
        start=start,
        end=end,
        acoustic=acoustic,
        lm=-0.25,
        confidence=0.5,
    )


def lattice() -> Lattice:
    """ "keep the light" or "keep a light", and a token without text."""
    return Lattice(
        start=0.0,
        end=1.6,
        prune=5.0,
        score=-1.75,
        frame_seconds=FRAME,
        times=(0.0, 0.48, 0.64, 0.64, 1.2),
        arcs=(
            arc(0, 1, "keep", 0.16, 0.48, -0.5),
            arc(1, 2, "the", 0.56, 0.64, -0.25),
            arc(1, 3, "a", 0.56, 0.64, -2.5),
            arc(2, 4, "light", 0.72, 1.2, -0.25),
            arc(3, 4, "", 0.64, 0.72, 0.0),
        ),
        ends=(LatticeEnd(state=4, acoustic=-0.125, lm=0.0),),
    )


def transcript(*lattices: Lattice, asked: float | None = 5.0) -> Transcript:
    return Transcript(
        audio=AudioFacts(name="reel 42.flac", format="FLAC", sample_rate=16000, channels=1, duration=30.0),
        model=ModelFacts(name="demo-tdt", sha256="0" * 64),
        options={"decoder": "beam"} | ({} if asked is None else {"lattice": asked}),
        coverage=Coverage(audio_seconds=30.0, covered_seconds=30.0, speech_seconds=30.0, ratio=1),
        text="",
        words=(),
        segments=(),
        lattice=lattices,
    )


@dataclass
class Archived:
    """What a reader of Kaldi's text form finds: costs and frames of arcs and ends."""

    arcs: list[tuple[int, int, str, float, float, int]]
    finals: dict[int, tuple[float, float, int]]


def weights(text: str) -> tuple[float, float, int]:
    graph, acoustic, frames = text.split(",")
    return float(graph), float(acoustic), len(frames.split("_")) if frames else 0


def read_archive(text: str) -> dict[str, Archived]:
    found = {}
    assert text.endswith("\n\n")
    for entry in text.split("\n\n")[:-1]:
        name, *lines = entry.split("\n")
        rows = [line.split() for line in lines]
        assert all(len(row) in (2, 4) for row in rows)
        found[name] = Archived(
            [(int(r[0]), int(r[1]), r[2], *weights(r[3])) for r in rows if len(r) == 4],
            {int(r[0]): weights(r[1]) for r in rows if len(r) == 2},
        )
    return found


def test_a_kaldi_archive_to_the_letter() -> None:
    told = render(transcript(lattice()), "kaldi")

    assert told == (
        "reel_42.flac-0-0000000-0000160\n"
        "0 1 keep 0.25,0.5,1_1_1_1_1_1\n"
        "1 2 the 0.25,0.25,1_1\n"
        "1 3 a 0.25,2.5,1_1\n"
        "2 4 light 0.25,0.25,1_1_1_1_1_1_1\n"
        "3 4 <eps> 0.25,0,1_1_1_1_1_1_1\n"
        "4 0,0.125,1_1_1_1_1\n"
        "\n"
    )


def test_a_kaldi_reader_finds_the_same_lattices() -> None:
    later = lattice().shift(20.0, channel=1)

    found = read_archive(render(transcript(lattice(), later), "kaldi"))

    assert list(found) == ["reel_42.flac-0-0000000-0000160", "reel_42.flac-1-0002000-0002160"]
    for name, told in zip(found, (lattice(), later), strict=True):
        arcs = [(a.source, a.target, a.word or "<eps>", -a.lm, -a.acoustic) for a in told.arcs]
        assert [row[:5] for row in found[name].arcs] == arcs
        frames = {0: 0}
        for source, target, _, _, _, spent in found[name].arcs:
            assert frames.setdefault(target, frames[source] + spent) == frames[source] + spent
        assert {frames[state] + rest for state, (_, _, rest) in found[name].finals.items()} == {20}


def test_json_holds_each_chunks_lattice_and_reads_back() -> None:
    both = (lattice(), lattice().shift(20.0, channel=0))
    rows = json.loads(render(transcript(*both), "lattice"))

    assert tuple(map(Lattice.model_validate, rows)) == both
    assert rows[0]["arcs"][0] == {
        "from": 0,
        "to": 1,
        "word": "keep",
        "start": 0.16,
        "end": 0.48,
        "acoustic": -0.5,
        "lm": -0.25,
        "confidence": 0.5,
    }
    assert (rows[1]["start"], rows[1]["arcs"][0]["start"], rows[1]["times"][1]) == (20.0, 20.16, 20.48)


def test_the_record_holds_lattices_and_alternatives_only_where_there_are_some() -> None:
    bare, full = transcript(asked=None), transcript(lattice())
    assert Transcript.model_validate_json(render(full, "json")) == full
    assert "lattice" not in json.loads(render(bare, "json"))
    word = Word(text="keep", start=0, end=1, confidence=0.5)
    assert "alternatives" not in word.model_dump(mode="json")
    other = word.model_copy(update={"alternatives": (Alternative(text="heap", confidence=0.25),)})
    assert Word.model_validate_json(other.model_dump_json()) == other


@pytest.mark.parametrize("form", ["lattice", "kaldi"])
def test_a_lattice_that_nobody_asked_for_is_not_found(form: str) -> None:
    with pytest.raises(NotFound, match="submit the job with the option"):
        render(transcript(asked=None), form)
    assert render(transcript(), form) in ("[]\n", "")
