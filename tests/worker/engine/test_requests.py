"""What each utterance asks for itself, through a real engine process: batches are shared, answers are not."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ops.testbed.fake_models import LOADER, RATE, tone
from ops.testbed.jobs import taken_in
from ops.testbed.waiting import until
from spool.domain import Recognition
from spool.errors import InvalidRequest
from tests.worker.engine.gated_models import LOADER as REAL
from worker.engine import BatchLimits, Engine, EngineOptions
from worker.models import DecodeRequest, SearchOptions, Tokenizer

pytestmark = pytest.mark.integration

DEADLINE = 60.0
ROOT = Path(__file__).parents[3]
DEMO = str(ROOT / "models" / "demo")
GOLDEN = ROOT / "tests" / "golden"
BEAM = SearchOptions(decoder="beam", beam=4, nbest=2)


@pytest.fixture
def fake() -> Iterator[Engine]:
    limits = BatchLimits(utterances=16, samples=16 * 6 * RATE, padding=0.9)
    engine = Engine(EngineOptions(slots=24, slot_samples=6 * RATE, limits=limits, loader=LOADER)).start()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    limits = BatchLimits(utterances=16, samples=16 * 10 * RATE, padding=0.9)
    engine = Engine(EngineOptions(slots=16, slot_samples=10 * RATE, limits=limits, loader=REAL)).start()
    yield engine
    engine.close()


def speech() -> list[np.ndarray]:
    with np.load(GOLDEN / "audio.npz") as file:
        rows = zip(file["audio"], file["lengths"], strict=True)
        return [(row[:length] / 32768).astype(np.float32) for row, length in rows]


def test_jobs_with_other_phrases_and_contexts_share_a_batch(fake: Engine, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    model = f"asks+gate={gate}"
    first = fake.submit("first", tone(1), model, DecodeRequest(search=BEAM))
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    asks = [DecodeRequest(phrases=(f"p{n}",), context=(7, n)) for n in range(8)]
    futures = [
        fake.submit(f"job{n}", tone(1), model, ask.model_copy(update={"search": BEAM}))
        for n, ask in enumerate(asks)
    ]
    taken_in(fake)
    gate.touch()
    answers = [future.result(DEADLINE) for future in futures]
    assert first.result(DEADLINE).words[0].text == "level21+first"
    assert [answer.words[0].text for answer in answers] == [f"level21+p{n}+{n}" for n in range(8)]
    assert {answer.batch_size for answer in answers} == {8}
    assert tuple(each.text for each in answers[0].nbest) == ("level21+p0+0", "nothing")


def test_a_phrase_that_cannot_be_written_fails_its_own_utterance(fake: Engine, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    model = f"asks+gate={gate}"
    held = fake.submit("held", tone(1), model, DecodeRequest(search=BEAM))
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    good = [fake.submit(f"job{n}", tone(1), model, DecodeRequest(search=BEAM)) for n in range(3)]
    bad = fake.submit("bad", tone(1), model, DecodeRequest(phrases=("unspeakable",), search=BEAM))
    gate.touch()
    for future in (held, *good):
        assert future.result(DEADLINE).words
    with pytest.raises(InvalidRequest, match="cannot be written"):
        bad.result(DEADLINE)
    with pytest.raises(InvalidRequest, match="cannot be written"):
        fake.prepare("plain", DecodeRequest(phrases=("unspeakable",), search=BEAM)).result(DEADLINE)


def write_lm(path: Path, pieces: tuple[str, ...], seed: int) -> Path:
    """A bigram model of chance over the tokens."""
    chance = random.Random(seed)
    words = [piece for piece in pieces if piece and piece not in ("<unk>", "<s>", "</s>")]
    pairs = sorted({(chance.choice(words), chance.choice(words)) for _ in range(300)})
    ones = [f"{-chance.uniform(1, 4):.4f}\t{word}\t{-chance.uniform(0, 1):.4f}" for word in ("<s>", *words)]
    ones += ["-2.0\t</s>", "-3.0\t<unk>"]
    twos = [f"{-chance.uniform(0.1, 2):.4f}\t{a} {b}" for a, b in pairs]
    head = ["\\data\\", f"ngram 1={len(ones)}", f"ngram 2={len(twos)}", "", "\\1-grams:", *ones]
    path.write_text("\n".join([*head, "", "\\2-grams:", *twos, "", "\\end\\", ""]))
    return path


def told(answer: Recognition) -> list[object]:
    """All that a transcript shows of it."""
    scores = [round(each.score, 2) for each in answer.hypotheses]
    tokens = [(each.tokens, each.times) for each in answer.hypotheses]
    return [[each.text for each in answer.nbest], [word.text for word in answer.words], tokens, scores]


def test_the_demo_model_gives_each_utterance_what_it_asks_for_alone(engine: Engine, tmp_path: Path) -> None:
    clips = speech()
    pieces = Tokenizer.from_file(Path(DEMO) / "tokenizer.model").pieces
    lm = str(write_lm(tmp_path / "one.arpa", pieces, 1))
    other = str(write_lm(tmp_path / "two.arpa", pieces, 2))
    asks = [
        DecodeRequest(),
        DecodeRequest(phrases=("harbour", "the old lamp"), boost=4.0),
        DecodeRequest(phrases=("seven",), boost=2.0, context=(5, 9, 12)),
        DecodeRequest(language_model=lm, lm_weight=0.5),
        DecodeRequest(language_model=other, lm_weight=0.2, phrases=("river",)),
    ]
    options = SearchOptions(decoder="beam", beam=4, nbest=4)
    alone = [
        engine.submit(f"alone{n}", clip, DEMO, ask.model_copy(update={"search": options})).result(DEADLINE)
        for n, (clip, ask) in enumerate(zip(clips, asks, strict=False))
    ]
    assert {answer.batch_size for answer in alone} == {1}
    assert (
        alone[3].makers
        == engine.prepare(DEMO, asks[3].model_copy(update={"search": options})).result(DEADLINE).makers
    )
    assert alone[3].makers != alone[4].makers != alone[0].makers
    gate = tmp_path / "gate"
    gated = f"{gate}|{DEMO}"
    held = engine.submit("held", clips[0], gated, DecodeRequest(search=options))
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    together = [
        engine.submit(f"job{n}", clip, gated, ask.model_copy(update={"search": options}))
        for n, (clip, ask) in enumerate(zip(clips, asks, strict=False))
    ]
    taken_in(engine)
    gate.touch()
    answers = [future.result(DEADLINE) for future in together]
    held.result(DEADLINE)
    # How many share a batch is the pace's to say, and the gate made it slow.
    assert max(answer.batch_size for answer in answers) > 1
    assert [told(answer) for answer in answers] == [told(answer) for answer in alone]


def test_a_broken_language_model_is_refused_by_its_line(engine: Engine, tmp_path: Path) -> None:
    lm = tmp_path / "broken.arpa"
    lm.write_text("\\data\\\nngram 1=1\n\n\\1-grams:\nnonsense\n")
    ask = DecodeRequest(language_model=str(lm))
    with pytest.raises(InvalidRequest, match=r"broken\.arpa: line 5"):
        engine.prepare(DEMO, ask.model_copy(update={"search": BEAM})).result(DEADLINE)
    clip = speech()[0]
    bad = engine.submit("bad", clip, DEMO, ask.model_copy(update={"search": BEAM}))
    good = engine.submit("good", clip, DEMO, DecodeRequest(search=BEAM))
    with pytest.raises(InvalidRequest, match=r"broken\.arpa: line 5"):
        bad.result(DEADLINE)
    assert good.result(DEADLINE).frames
    with pytest.raises(InvalidRequest, match="cannot be read"):
        engine.prepare(DEMO, DecodeRequest(language_model=str(tmp_path / "none.arpa"), search=BEAM)).result(
            DEADLINE
        )
