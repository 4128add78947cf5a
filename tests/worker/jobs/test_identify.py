"""Which language is spoken in a recording whose model knows one: heard by another model, said on the job.

The words are the demo model's, of real speech. The multilingual Whisper is small and random, but for a bias
of its last layer towards the language that it is to hear.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from ops.testbed.jobs import WorkerHarness, running_engine
from spool.audit import audit
from spool.domain import ChunkSpan, Diarization, JobState, LanguageSpan
from spool.errors import StorageError
from spool.settings import Settings
from spool.store import claim_job, diarize_job, load_passes
from tests.worker.models.whisper.tiny import make_dims, make_tensors, write_hugging_face
from worker.engine import DEFAULT_LOADER, Engine
from worker.jobs import PLACES, Places, multilingual_models, run_claimed, warn_of_language
from worker.models import LANGUAGE_CODES, SpecialTokens
from worker.segmentation import Chunk

ROOT = Path(__file__).parents[3]
READER = ROOT / "samples" / "open" / "readers" / "reader-1.flac"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(loader=DEFAULT_LOADER) as engine:
        yield engine


@pytest.fixture
def worker_settings(tmp_path: Path) -> dict[str, object]:
    return {"models": {"demo-tdt": str(ROOT / "models" / "demo")}, "default_model": "demo-tdt"}


def whisper_that_hears(folder: Path, language: str | None) -> Path:
    """None: one that is as unsure as its random weights."""
    dims = make_dims()
    tensors = dict(make_tensors(dims))
    if language is not None:
        token = SpecialTokens(dims.n_vocab).first_language + LANGUAGE_CODES.index(language)
        bias = 20 * tensors["decoder.token_embedding.weight"][token]
        tensors["decoder.ln.bias"] = (tensors["decoder.ln.bias"] + bias).astype(np.float32)
    folder.mkdir()
    return write_hugging_face(folder, dims, tensors)


def beside(harness: WorkerHarness, folder: Path) -> WorkerHarness:
    """The worker with this model too."""
    models = {**harness.settings.models, "polyglot": str(folder)}
    harness.settings = harness.settings.model_copy(update={"models": models})
    context = replace(harness.services.context, settings=harness.settings)
    harness.services = replace(harness.services, context=context)
    return harness


def spoken(harness: WorkerHarness) -> Path:
    samples, _ = soundfile.read(READER, dtype="float32")
    return harness.record("reading.wav", np.tile(np.asarray(samples, np.float32), 12))


def submit(harness: WorkerHarness, *, reuse: bool = False) -> str:
    return harness.submit(spoken(harness), model="demo-tdt", reuse=reuse)


def warnings_of(harness: WorkerHarness, job_id: str) -> list[str]:
    job = harness.job(job_id)
    assert job.state is JobState.DONE, (job.error_code, job.error_message)
    return [each for each in job.warnings or () if "sounds like" in each]


def heard_in(harness: WorkerHarness, job_id: str) -> list[LanguageSpan]:
    with harness.db.read() as tx:
        return [span for each in load_passes(tx, job_id, "language") for span in each.languages]


def assert_lawful(harness: WorkerHarness) -> None:
    assert harness.assert_bills_equal_busy_time() > 0
    assert {b.rule for b in audit(harness.db, harness.objects).breaches} <= {"source"}


@pytest.mark.integration
def test_another_language_is_said_on_the_job_and_changes_no_transcript(
    harness: WorkerHarness, tmp_path: Path
) -> None:
    alone = submit(harness)
    assert harness.run(alone) == "done"
    chunks = harness.decoded
    assert (warnings_of(harness, alone), heard_in(harness, alone)) == ([], [])

    beside(harness, whisper_that_hears(tmp_path / "polyglot", "fr"))
    job_id = submit(harness)
    assert harness.run(job_id) == "done"
    heard = heard_in(harness, job_id)
    assert {(span.language, span.read_as) for span in heard} == {("fr", "en")}
    assert 2 <= len(heard) <= PLACES
    assert harness.decoded == 2 * chunks + len(heard), "each place once"
    (warning,) = warnings_of(harness, job_id)
    assert warning == (
        f"The speech sounds like fr at {len(heard)} of {len(heard)} places, first at 0:00, and demo-tdt "
        "knows only en. Listen to it, or transcribe it in that language: "
        f"spool rerun {job_id} --model polyglot --language fr"
    )
    first, second = harness.job(alone), harness.job(job_id)
    assert second.fingerprint == first.fingerprint
    records = [harness.read(job.transcript_key or "").decode() for job in (first, second)]
    assert records[1].replace(job_id, alone) == records[0]
    assert_lawful(harness)


@pytest.mark.integration
@pytest.mark.parametrize("language", ["en", None])
def test_the_models_own_language_and_an_unsure_answer_are_not_reported(
    harness: WorkerHarness, tmp_path: Path, language: str | None
) -> None:
    job_id = submit(beside(harness, whisper_that_hears(tmp_path / "polyglot", language)))
    assert harness.run(job_id) == "done"
    heard = heard_in(harness, job_id)
    assert heard
    assert language is None or all(span.read_as is None for span in heard)
    assert warnings_of(harness, job_id) == []
    assert_lawful(harness)


@pytest.mark.integration
def test_the_warning_stays_with_speakers_and_with_a_transcript_that_is_reused(
    harness: WorkerHarness, tmp_path: Path
) -> None:
    beside(harness, whisper_that_hears(tmp_path / "polyglot", "de"))
    job_id, again = submit(harness, reuse=True), submit(harness, reuse=True)
    assert harness.run(job_id) == harness.run(again) == "done"
    assert harness.job(again).reused_from == job_id
    assert warnings_of(harness, again) == [warnings_of(harness, job_id)[0].replace(job_id, again)]
    with harness.db.begin() as tx:
        diarize_job(tx, job_id, Diarization.model_validate({"speakers": 1}))
    assert harness.run(job_id) == "done"
    assert len(warnings_of(harness, job_id)) == 1
    assert_lawful(harness)


@pytest.mark.integration
def test_an_attempt_that_follows_listens_to_no_place_again(
    make_harness: Callable[..., WorkerHarness], tmp_path: Path
) -> None:
    harness = make_harness(lease_seconds=1.5, heartbeat_seconds=0.5)
    job_id = submit(beside(harness, whisper_that_hears(tmp_path / "polyglot", "fr")))
    with harness.db.begin() as tx:
        claim = claim_job(tx, job_id, harness.worker_id, harness.settings.lease_seconds)
    assert claim is not None
    store, harness.objects.put_bytes = harness.objects.put_bytes, _refuse  # type: ignore[method-assign]
    assert run_claimed(harness.services, claim) == "handed back"
    harness.objects.put_bytes = store  # type: ignore[method-assign]
    decoded = harness.decoded
    assert harness.run(job_id) == "done"
    assert harness.decoded == decoded
    assert len(warnings_of(harness, job_id)) == 1
    assert_lawful(harness)


@pytest.mark.integration
def test_a_broken_listener_and_a_worker_that_is_told_not_to_listen_fail_no_job(
    harness: WorkerHarness, tmp_path: Path
) -> None:
    folder = whisper_that_hears(tmp_path / "polyglot", "fr")
    weights = folder / "model.safetensors"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:1000])
    broken = submit(beside(harness, folder))
    assert harness.run(broken) == "done"
    weights.write_bytes(kept)
    harness.settings = harness.settings.model_copy(update={"language_check": False})
    harness.services = replace(
        harness.services, context=replace(harness.services.context, settings=harness.settings)
    )
    silent = submit(harness)
    assert harness.run(silent) == "done"
    for job_id in (broken, silent):
        assert (warnings_of(harness, job_id), heard_in(harness, job_id)) == ([], [])
    assert_lawful(harness)


def _refuse(*_: object, **__: object) -> Any:
    raise StorageError("The object store does not answer.")


# --- which answers are a warning ---------------------------------------------------------------------------


def span_at(place: int, language: str, probability: float, seconds: float = 25.0) -> LanguageSpan:
    start = 100.0 * place
    read_as = None if language == "en" else "en"
    return LanguageSpan(
        start=start, end=start + seconds, language=language, probability=probability, read_as=read_as
    )


@pytest.mark.parametrize(
    ("heard", "where"),
    [
        ([], None),
        ([("fr", 0.95)] * 5, "fr at 5 of 5 places, first at 0:00"),
        ([("en", 0.9), ("fr", 0.95), ("fr", 0.95), ("en", 0.9)], "fr at 2 of 4 places, first at 1:40"),
        ([("en", 0.9), ("fr", 0.95), ("fr", 0.95), ("en", 0.9), ("en", 0.9)], None),
        ([("fr", 0.95), ("en", 0.9)], None),
        ([("zh", 0.79)] * 5, None),
        ([("zh", 0.85), ("ja", 0.85), ("ko", 0.85)], None),
        ([("fr", 0.91)], "fr at 0:00"),
        ([("fr", 0.85)], None),
    ],
)
def test_only_a_sure_answer_at_half_of_the_places_is_a_warning(
    heard: list[tuple[str, float]],
    where: str | None,
    worker_settings: dict[str, object],
    make_settings: object,
) -> None:
    spans = [span_at(place, *each) for place, each in enumerate(heard)]
    warning = warn_of_language("job_1", "demo-tdt", spans, Settings())
    if where is None:
        assert warning is None
    else:
        assert warning is not None
        assert f"sounds like {where}, and" in warning
        assert warning.endswith("spool rerun job_1 --model whisper-base --language fr")


def test_a_short_chunk_that_is_the_only_one_is_not_enough() -> None:
    ask = partial(warn_of_language, "job_1", "demo-tdt", settings=Settings())
    assert ask(heard=[span_at(0, "fr", 0.99, seconds=9.0)]) is None
    assert ask(heard=[span_at(0, "fr", 0.99, seconds=11.0)]) is not None


@pytest.mark.parametrize("count", [0, 1, 4, 5, 9, 10, 23, 3000])
def test_the_places_are_few_and_spread_over_the_recording(count: int) -> None:
    places, second = Places(), 16_000
    chunks = [
        Chunk(
            ChunkSpan(
                0, at, 20 * second * at, 20 * second * (at + 1), 20 * second * at, 20 * second * (at + 1)
            ),
            np.zeros(1, np.float32),
        )
        for at in range(count)
    ]
    silent = replace(chunks[0], span=replace(chunks[0].span, speech=False)) if chunks else None
    given = [*([silent] if silent else []), *chunks]
    assert list(places.pick_from(given)) == given
    picked = [chunk.span.index for chunk in places.picked]
    assert picked == sorted(set(picked))
    assert len(picked) == min(count, PLACES)
    assert len(places.kept) < 2 * PLACES
    if count > PLACES:
        assert picked[0] == 0
        assert picked[-1] >= 0.75 * (count - 1)


def test_models_that_detect_languages_are_told_by_their_files(tmp_path: Path) -> None:
    dims = make_dims(51864)
    (tmp_path / "english").mkdir()
    english = write_hugging_face(tmp_path / "english", dims, make_tensors(dims))
    polyglot = whisper_that_hears(tmp_path / "polyglot", None)
    models = {"a": str(english), "b": str(polyglot), "c": str(ROOT / "models" / "demo"), "d": "no/such"}
    assert [each.name for each in multilingual_models(Settings(models=models))] == ["b"]
