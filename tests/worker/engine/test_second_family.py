"""A family that the engine has never seen: chunks, batches, options and bills come from its face."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spool.errors import InvalidRequest
from tests.worker.models.toy_family import spell, write_toy
from worker.engine import BatchLimits, Engine, EngineOptions
from worker.models import DecodeRequest, SearchOptions

pytestmark = pytest.mark.integration
LOADER = "tests.worker.models.toy_family:load_with_toy"
DEADLINE = 60.0


@pytest.fixture
def engine() -> Iterator[Engine]:
    limits = BatchLimits(utterances=8, bytes=3000, padding=0.2)
    engine = Engine(EngineOptions(slots=8, slot_samples=12 * 16_000, limits=limits, loader=LOADER)).start()
    yield engine
    engine.close()


def test_a_new_family_goes_through_the_engine(engine: Engine, tmp_path: Path) -> None:
    model = write_toy(tmp_path)

    info = engine.prepare(model, DecodeRequest()).result(DEADLINE)
    assert info.heads == ("attention",)
    assert info.chunking.max == 12.0

    for options in (SearchOptions(), SearchOptions(decoder="beam", beam=2, nbest=2)):
        texts = ["hello world", "a", "unlike lengths are no padding here"]
        futures = [engine.submit("job", spell(text), model, DecodeRequest(search=options)) for text in texts]
        results = [future.result(DEADLINE) for future in futures]
        assert [" ".join(word.text for word in result.words) for result in results] == texts
        assert results[0].words[1].start == pytest.approx(0.6)
        assert [result.frames for result in results] == [120, 120, 120]
        assert {result.language and result.language.code for result in results} == {"en"}
    assert engine.stats.busy_ns == engine.busy_ns > 0


@pytest.mark.parametrize(
    ("options", "request_", "words"),
    [
        (SearchOptions(beta=1.0), DecodeRequest(), "beta: the greedy search of an attention head"),
        (SearchOptions(scores="fixed"), DecodeRequest(), "scores: .* no such parameter"),
        (
            SearchOptions(decoder="beam", max_symbols=3),
            DecodeRequest(),
            "max_symbols: .* length_penalty",
        ),
        (SearchOptions(), DecodeRequest(prompt="so"), "prompt: .* takes: language"),
        (
            SearchOptions(),
            DecodeRequest(language="de"),
            "language: .* 'de'.* knows: en",
        ),
        (SearchOptions(), DecodeRequest(task="translate", language="en"), "task:"),
        (
            SearchOptions(decoder="beam"),
            DecodeRequest(alternatives=2),
            "alternatives: an attention decoder's beam keeps hypotheses and no lattice",
        ),
        (
            SearchOptions(decoder="beam"),
            DecodeRequest(language_model="gone.arpa"),
            "gone.arpa: the language model cannot be read",
        ),
        (SearchOptions(head="tdt"), DecodeRequest(), "no tdt head; it has: attention"),
    ],
)
def test_what_a_family_lacks_is_refused_by_name(
    engine: Engine, tmp_path: Path, options: SearchOptions, request_: DecodeRequest, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        engine.prepare(write_toy(tmp_path), request_.model_copy(update={"search": options})).result(DEADLINE)
