"""The language of a recording from its chunks', and jobs that ask for one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops.testbed.fake_models import RATE
from ops.testbed.jobs import WorkerHarness, running_engine
from spool.domain import ChunkLanguage, ChunkSpan, Job, Transcript
from spool.formats import render
from tests.worker.models.toy_family import spell, write_toy
from tests.worker.speech.sounds import Floats
from worker.engine import Engine
from worker.jobs import language_spans, main_language


def chunks(*rows: tuple[str, dict[str, float]], channel: int = 0) -> list[tuple[ChunkSpan, ChunkLanguage]]:
    size = 20 * RATE
    return [
        (
            ChunkSpan(channel, at, at * size, (at + 1) * size, at * size, (at + 1) * size),
            ChunkLanguage(code=code, probabilities=shares),
        )
        for at, (code, shares) in enumerate(rows)
    ]


EN, DE = ("en", {"en": 0.95, "de": 0.03}), ("de", {"de": 0.95, "en": 0.04})
WELSH = ("cy", {"cy": 0.5, "en": 0.4})


def test_a_doubtful_chunk_has_its_neighbours_language_and_says_what_it_was_read_in() -> None:
    spans = language_spans(chunks(EN, EN, WELSH, EN))
    assert [span.language for span in spans] == ["en"] * 4
    assert [span.read_as for span in spans] == [None, None, "cy", None]
    assert [span.probability for span in spans] == [0.95, 0.95, 0.4, 0.95]
    assert (spans[2].start, spans[2].end) == (40.0, 60.0)


def test_a_change_of_language_is_kept() -> None:
    spans = language_spans(chunks(DE, DE, EN, EN, EN))
    assert [span.language for span in spans] == ["de", "de", "en", "en", "en"]
    assert main_language(spans) == "en"


def test_one_sure_chunk_is_an_island_and_one_less_sure_is_none() -> None:
    sure = ("fr", {"fr": 0.999})
    assert [s.language for s in language_spans(chunks(EN, sure, EN))] == ["en", "fr", "en"]
    assert [s.language for s in language_spans(chunks(EN, DE, EN))] == ["en", "en", "en"]


def test_channels_are_apart_and_a_pin_is_as_it_is() -> None:
    spans = language_spans(chunks(EN, EN) + chunks(("de", {}), ("de", {}), channel=1))
    assert [(span.channel, span.language) for span in spans] == [(0, "en"), (0, "en"), (1, "de"), (1, "de")]
    assert [span.probability for span in spans] == [0.95, 0.95, None, None]
    assert language_spans([]) == ()
    assert main_language(()) is None


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(utterances=4, loader="tests.worker.models.toy_family:load_with_toy") as engine:
        yield engine


@pytest.fixture
def worker_settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "models": {"many": write_toy(tmp_path / "many", "polyglot"), "one": write_toy(tmp_path / "one")},
        "default_model": "many",
    }


def spoken(*texts: str) -> Floats:
    """Each text for 16 s, with a little noise, or constant levels would count as silence."""
    samples = np.concatenate([spell((text * 160)[:160]) for text in texts])
    return (samples + np.random.default_rng(2).uniform(-0.01, 0.01, len(samples))).astype(np.float32)


def finished(
    harness: WorkerHarness, path: Path, model: str = "many", **options: Any
) -> tuple[Job, Transcript]:
    job_id = harness.submit(path, model=model, **options)
    assert harness.run(job_id) == "done", harness.job(job_id).error_message
    job = harness.job(job_id)
    assert job.transcript_key is not None
    return job, Transcript.model_validate_json(harness.read(job.transcript_key))


@pytest.mark.integration
def test_the_language_is_stated_everywhere(harness: WorkerHarness) -> None:
    path = harness.record("talk.wav", spoken("bee tree ", "bee tree ", "zig zag "))
    job, found = finished(harness, path)
    assert (job.language, found.language) == ("en", "en")
    languages = [span.language for span in found.languages]
    assert languages == sorted(languages, reverse=True)
    assert set(languages) == {"en", "de"}
    assert all(span.probability is not None for span in found.languages)
    assert 'xml:lang="en"' in render(found, "ttml")
    saved = [chunk.heard.language for chunk in harness.chunks(job.id)]
    assert {language.code for language in saved if language is not None} == {"en", "de"}


@pytest.mark.integration
def test_a_pin_is_obeyed_and_a_list_is_kept_to(harness: WorkerHarness) -> None:
    path = harness.record("talk.wav", spoken("bee tree ", "zig zag "))
    _, among = finished(harness, path, language=["cy", "de"])
    assert {span.read_as or span.language for span in among.languages} <= {"cy", "de"}
    job, pinned = finished(harness, path, language="cy", task="translate")
    assert (job.language, pinned.language) == ("cy", "cy")
    assert {(span.language, span.probability) for span in pinned.languages} == {("cy", None)}
    assert 'xml:lang="en"' in render(pinned, "ttml"), "translated"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        ("one", {"language": "de"}, "language: one does not know 'de'"),
        ("one", {"language": ["de", "en"]}, "language: one does not tell languages apart"),
        ("one", {"task": "translate"}, "task: one takes no such option"),
        ("many", {"language": ["en", "xx"]}, "language: many does not know 'xx'"),
    ],
)
def test_what_a_model_cannot_do_is_refused_before_the_recording_is_fetched(
    harness: WorkerHarness, model: str, options: dict[str, Any], reason: str
) -> None:
    job_id = harness.submit(harness.folder / "not there.wav", model=model, **options)
    assert harness.run(job_id) == "failed"
    job = harness.job(job_id)
    assert job.error_code == "invalid_request"
    assert reason in (job.error_message or "")
