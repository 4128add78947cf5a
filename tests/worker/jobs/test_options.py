"""What a job asks of the search, from its row to its transcript, over SQLite and a real engine process."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from ops.testbed.fake_models import LOADER, RATE
from ops.testbed.jobs import WorkerHarness, running_engine, speechlike
from ops.testbed.waiting import until
from spool.audit import audit
from spool.domain import JobState, Transcript
from spool.domain.search.graph import GraphSearch
from spool.errors import WeightsChanged
from tests.worker.decode.wfst.graphs import made_graph
from tests.worker.engine.gated_models import LOADER as REAL
from tests.worker.engine.test_requests import DEMO, speech, write_lm
from tests.worker.models.language.fixtures import random_tensors, write_language_model
from worker.decode import SCORE_DIGITS, text_of
from worker.decode.search import search
from worker.engine import Engine
from worker.local import transcribe_files
from worker.models import DecodeRequest, SearchOptions, Tokenizer, load_model
from worker.segmentation import plan_chunks

pytestmark = pytest.mark.integration

BEAM: dict[str, Any] = {"decoder": "beam", "beam": 4}
U2 = Path(__file__).parents[2] / "golden" / "wenet" / "rnnt"


def read_recording() -> NDArray[np.float32]:
    with np.load(U2.with_suffix(".npz")) as file:
        samples: NDArray[np.float32] = file["u1.wav"].astype(np.float32) / 32768
    return samples


def started(loader: str = LOADER) -> AbstractContextManager[Engine]:
    return running_engine(slots=16, utterances=8, loader=loader, padding=0.9)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with started() as engine:
        yield engine


@pytest.fixture
def worker_settings(tmp_path: Path, archive: Path, gate: Path) -> dict[str, Any]:
    (archive / "town.arpa").write_text("a town's words")
    return {
        "models": {
            "plain": "plain",
            "asks": "asks",
            "gated": f"asks+gate={gate}",
            "files": f"asks+weights={tmp_path / 'weights'}",
            "demo-tdt": DEMO,
            "demo-gated": f"{gate}|{DEMO}",
            "u2": str(U2),
            "reader": str(U2.parent / "offline"),
            "language": str(tmp_path / "language"),
        },
        "default_model": "plain",
        "language_models": {"town": str(archive / "town.arpa")},
        "graphs": {"words": str(tmp_path / "graph.npz")},
    }


def transcript_of(harness: WorkerHarness, job_id: str) -> Transcript:
    job = harness.job(job_id)
    assert job.state is JobState.DONE, job.error_message
    assert job.transcript_key is not None
    return Transcript.model_validate_json(harness.read(job.transcript_key))


def test_phrases_and_the_language_model_reach_the_search_and_the_transcript(harness: WorkerHarness) -> None:
    path = harness.record("a.wav", speechlike(5))
    boost = {"phrases": ["lamp", "fog horn"], "weight": 2.0}
    job_id = harness.submit(path, "asks", **BEAM, nbest=2, boost=boost, language_model="town")
    assert harness.run(job_id) == "done"
    told = transcript_of(harness, job_id)
    assert told.words[0].text == "level16+fog horn+lamp+first"
    assert told.options["boost"] == harness.job(job_id).options.model_dump(mode="json")["boost"]
    assert told.options["language_model"] == "town"
    assert told.language_model is not None
    assert (told.language_model.name, len(told.language_model.sha256)) == ("town", 64)
    (chunk,) = told.nbest
    assert (chunk.start, chunk.end, chunk.channel) == (0.0, 5.0, 0)
    assert [(each.text[:7], each.score) for each in chunk.hypotheses] == [
        ("level16", -1.0),
        ("nothing", -2.0),
    ]
    assert audit(harness.db, harness.objects).breaches == []


def test_a_job_chooses_head_and_rescoring(make_harness: Callable[..., WorkerHarness]) -> None:
    with started(REAL) as engine:
        harness = make_harness(engine)
        with np.load(U2.with_suffix(".npz")) as file:
            dump = {name: file[name] for name in ("answers", "u1.wav")}
        told = json.loads(str(dump["answers"]))["utterances"][1]["search"]
        path = harness.record("a.wav", dump["u1.wav"].astype(np.float32) / 32768)
        asked: dict[str, Any] = {
            "head": "ctc",
            "beam": 10,
            "nbest": 10,
            "ctc_weight": 0.5,
            "reverse_weight": 0.3,
        }
        job_id = harness.submit(path, "u2", decoder="rescore", **asked)
        assert harness.run(job_id) == "done"
        (chunk,) = transcript_of(harness, job_id).nbest
        weights = {name: asked[name] for name in ("ctc_weight", "reverse_weight")}
        (expected,) = [each for each in told["rescore"] if weights.items() <= each.items()]
        best = load_model(U2).tokenizer.decode(expected["tokens"])
        assert chunk.hypotheses[0].text == best
        assert chunk.hypotheses[0].score == pytest.approx(expected["score"], abs=2e-3)  # of our own features
        assert len(chunk.hypotheses) == 10
        assert audit(harness.db, harness.objects).breaches == []

        asked = {
            "head": "rnnt",
            "beam": 4,
            "nbest": 4,
            "transducer_weight": 0.7,
            "search_ctc_weight": 0.3,
        }
        job_id = harness.submit(path, "u2", decoder="rescore", **asked)
        assert harness.run(job_id) == "done"
        (chunk,) = transcript_of(harness, job_id).nbest
        (alone,) = transcribe_files([path], str(U2), SearchOptions(decoder="rescore", **asked))
        assert [each.score for each in chunk.hypotheses] == pytest.approx(
            [each.score for each, _ in alone.nbest], abs=1e-3
        )

        refused = harness.submit(path, "u2", decoder="attention", head="tdt")
        harness.run(refused)
        job = harness.job(refused)
        assert job.state is JobState.FAILED
        assert "the model has no tdt head; it has: ctc, ctc+attention, rnnt, rnnt+attention" in (
            job.error_message or ""
        )


def test_a_second_model_orders_a_jobs_hypotheses(make_harness: Callable[..., WorkerHarness]) -> None:
    with started(REAL) as engine:
        harness = make_harness(engine)
        samples = read_recording()
        path = harness.record("a.wav", samples)
        asked: dict[str, Any] = {"head": "ctc", "decoder": "beam", "beam": 6, "nbest": 6}
        plain = harness.submit(path, "u2", reuse=True, **asked)
        jobs = [
            harness.submit(path, "u2", reuse=True, **asked, rescore={"model": "reader", "weight": weight})
            for weight in (0.0, 2.0)
        ]
        assert [harness.run(each) for each in (plain, *jobs)] == ["done"] * 3
        first, unread, read = (transcript_of(harness, each).nbest[0].hypotheses for each in (plain, *jobs))
        assert [each.text for each in unread] == [each.text for each in first]
        assert [each.text for each in read] != [each.text for each in first]
        (result,) = transcribe_files(
            [path],
            str(U2),
            SearchOptions(decoder="beam", beam=6, nbest=6, head="ctc"),
            detector=False,
            rescore=(str(U2.parent / "offline"), 2.0),
        )
        assert result.transcript is not None
        assert read == result.transcript.nbest[0].hypotheses
        assert len({harness.job(each).fingerprint for each in (plain, *jobs)}) == 3
        harness.assert_bills_equal_busy_time()
        assert audit(harness.db, harness.objects).breaches == []

        deaf = harness.submit(path, "reader", **BEAM, rescore={"model": "demo-tdt"})
        harness.run(deaf)
        assert "has no attention decoder" in (harness.job(deaf).error_message or "")
        alone = harness.submit(path, "u2", **asked, rescore={"model": "nobody"})
        harness.run(alone)
        assert "no model to rescore with 'nobody' here" in json.dumps(harness.job(alone).refusals)


def test_a_language_model_orders_a_jobs_hypotheses(
    make_harness: Callable[..., WorkerHarness], tmp_path: Path
) -> None:
    (tmp_path / "language").mkdir()
    write_language_model(tmp_path / "language", random_tensors())
    with started(REAL) as engine:
        harness = make_harness(engine)
        file = Path(__file__).parents[3] / "samples" / "demo-tdt" / "digits" / "string-1.flac"
        path = harness.record("b.wav", soundfile.read(file, dtype="float32")[0])
        asked: dict[str, Any] = {"head": "ctc", "decoder": "beam", "beam": 6, "nbest": 6}
        rescore = {"model": "language", "weight": 0.6}
        job = harness.submit(path, "demo-tdt", **asked, rescore=rescore)
        assert harness.run(job) == "done"
        (result,) = transcribe_files(
            [path],
            DEMO,
            SearchOptions(decoder="beam", beam=6, nbest=6, head="ctc"),
            rescore=(str(tmp_path / "language"), 0.6),
        )
        assert result.transcript is not None
        assert transcript_of(harness, job).nbest[0].hypotheses == result.transcript.nbest[0].hypotheses
        harness.assert_bills_equal_busy_time()

        mute = harness.submit(path, "language")
        harness.run(mute)
        assert "a language model transcribes nothing" in (harness.job(mute).error_message or "")


def test_a_job_searches_a_decoding_graph(make_harness: Callable[..., WorkerHarness], tmp_path: Path) -> None:
    model = load_model(U2)
    path = made_graph(model.tokenizer.pieces, tmp_path)
    samples = read_recording()
    options = SearchOptions(
        decoder="wfst", beam=4, nbest=3, graph=GraphSearch(name=str(path), max_active=500, unit_penalty=0.25)
    )
    (expected,) = search(model, model.encode([samples]), options)
    with started(REAL) as engine:
        harness = make_harness(engine)
        recording = harness.record("a.wav", samples)
        graph = {"name": "words", "max_active": 500, "unit_penalty": 0.25}
        job_id = harness.submit(recording, "u2", decoder="wfst", nbest=3, graph=graph, speech_detector=False)
        assert harness.run(job_id) == "done"
        told = transcript_of(harness, job_id)
        heard = told.nbest[0].hypotheses
        assert [each.text for each in heard] == [text_of(each, model.tokenizer) for each in expected]
        assert [each.score for each in heard] == pytest.approx([each.score for each in expected], abs=2e-3)
        assert [word.text for word in told.words] == [word.text for word in expected[0].spoken or ()]
        assert told.language_model is not None
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert (told.language_model.name, told.language_model.sha256) == ("words", digest)
        assert audit(harness.db, harness.objects).breaches == []


def test_jobs_with_other_phrases_share_a_batch(harness: WorkerHarness, gate: Path) -> None:
    path = harness.record("a.wav", speechlike(5))
    first = harness.start(harness.submit(path, "gated"))
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    batches = harness.engine.stats.batches
    jobs = [harness.submit(path, "gated", boost={"phrases": [f"p{n}"]}) for n in range(4)]
    running = [harness.start(job) for job in jobs]
    gate.touch()
    assert [one.end() for one in (first, *running)] == ["done"] * 5
    for number, job in enumerate(jobs):
        assert {word.text.split("+")[1] for word in transcript_of(harness, job).words} == {f"p{number}"}
    assert harness.engine.stats.batches - batches <= 5
    harness.assert_bills_equal_busy_time()


def test_what_cannot_be_asked_fails_its_job_before_the_recording_is_fetched(harness: WorkerHarness) -> None:
    gone = harness.folder / "gone.wav"
    job_id = harness.submit(gone, "asks", boost={"phrases": ["unspeakable"]})
    assert harness.run(job_id) == "failed"
    assert harness.job(job_id).error_code == "invalid_request"
    assert "gone.wav: the phrase 'unspeakable' cannot be written" in (harness.job(job_id).error_message or "")
    unknown = harness.submit(gone, "asks", language_model="village")
    assert harness.run(unknown) == "failed"
    assert harness.job(unknown).error_code == "unknown_model"
    assert "no language model 'village' here; this worker knows town" in (
        harness.job(unknown).error_message or ""
    )


def test_a_broken_language_model_fails_its_job_by_its_line(
    make_harness: Callable[..., WorkerHarness],
) -> None:
    with started(REAL) as engine:
        harness = make_harness(engine)
        path = harness.record("a.wav", speech()[0])
        job_id = harness.submit(path, "demo-tdt", language_model="town")
        assert harness.run(job_id) == "failed"
        assert "town.arpa: ends at line 1" in (harness.job(job_id).error_message or "")
        assert harness.run(harness.submit(path, "demo-tdt")) == "done"


def test_a_job_goes_on_in_its_context_and_no_retry_tells(harness: WorkerHarness, gate: Path) -> None:
    samples = np.stack([speechlike(130, 0.2), speechlike(130, 0.6)], axis=1)
    path = harness.record("long.wav", samples)
    asked: dict[str, Any] = {"boost": {"phrases": ["p"]}, "channels": "separate"}

    broken = harness.submit(path, "gated", context="job", **asked)
    running = harness.start(broken)
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    harness.draining.set()
    gate.touch()
    assert running.end() == "handed back"
    first = harness.chunks(broken)
    assert 1 <= len(first) <= 2, "one chunk of each channel at a time"
    harness.draining.clear()
    assert harness.run(broken) == "done"
    assert harness.decoded == len(harness.chunks(broken)), "each chunk once"

    whole = harness.submit(path, "gated", context="job", **asked)
    assert harness.run(whole) == "done"
    apart = harness.submit(path, "gated", **asked)
    assert harness.run(apart) == "done"
    assert transcript_of(harness, broken).words == transcript_of(harness, whole).words
    beginnings = [
        sum("first" in word.text for word in transcript_of(harness, job).words) for job in (whole, apart)
    ]
    chunks = len(harness.chunks(apart))
    assert beginnings == [2, chunks], "once a channel; once a chunk"
    assert [chunk.tail is None for chunk in harness.chunks(apart)] == [True] * chunks
    assert audit(harness.db, harness.objects).breaches == []


def test_a_context_is_the_state_of_the_search_before_it(
    make_harness: Callable[..., WorkerHarness],
) -> None:
    # Given a recording of several chunks that are cut in silence, and a language model
    clips = speech() * 3
    pause = np.zeros(RATE // 2, np.float32)
    samples = np.concatenate([part for clip in clips for part in (clip, pause)])
    model = load_model(DEMO, mx.float32)
    with started(REAL) as engine:
        harness = make_harness(engine)
        lm = harness.folder / "town.arpa"
        write_lm(lm, Tokenizer.from_file(Path(DEMO) / "tokenizer.model").pieces, 3)
        path = harness.record("long.wav", samples)
        asked: dict[str, Any] = {
            **BEAM,
            "nbest": 3,
            "language_model": "town",
            "lm_weight": 0.6,
            "lm_blanks": True,
        }
        job_id = harness.submit(path, "demo-tdt", context="job", boost={"phrases": ["seven four"]}, **asked)
        assert harness.run(job_id) == "done"
        told = transcript_of(harness, job_id)
        apart = harness.submit(path, "demo-tdt", boost={"phrases": ["seven four"]}, **asked)
        assert harness.run(apart) == "done"

    # When the search itself goes through the same chunks, each with what it carries from the one before
    options = SearchOptions(decoder="beam", beam=4, nbest=3, lm_blanks=True)
    chunks = [chunk for chunk in plan_chunks([samples]) if chunk.speech]
    assert len(chunks) >= 2
    context: tuple[int, ...] = ()
    for chunk, heard in zip(chunks, told.nbest, strict=True):
        ask = DecodeRequest(
            phrases=("seven four",), boost=1.0, context=context, language_model=str(lm), lm_weight=0.6
        )
        (found,) = search(model, model.encode([chunk.samples]), options, [ask])
        context += found[0].tokens

        # Then the job found the same
        texts = [(model.tokenizer.decode(each.tokens), round(each.score, SCORE_DIGITS)) for each in found]
        assert [each.text for each in heard.hypotheses] == [text for text, _ in texts]
        assert [each.score for each in heard.hypotheses] == pytest.approx(
            [score for _, score in texts], abs=0.01
        )
    scores = [[each.score for each in heard.hypotheses] for heard in told.nbest]
    without = [[each.score for each in heard.hypotheses] for heard in transcript_of(harness, apart).nbest]
    assert scores[0] == without[0]
    assert scores[1] != without[1], "what was heard before has a say"


def test_chunks_of_weights_that_have_changed_are_decoded_again(
    make_harness: Callable[..., WorkerHarness], tmp_path: Path
) -> None:
    weights = tmp_path / "weights"
    weights.write_text("old")
    with started() as engine:
        harness = make_harness(engine)
        path = harness.record("a.wav", speechlike(130))
        job_id = harness.submit(path, "files")
        harness.settings.models["files"] += f"+gate={tmp_path / 'gate'}"
        running = harness.start(job_id)
        until((tmp_path / "gate.reached").exists, "a batch at the gate")
        harness.draining.set()
        (tmp_path / "gate").touch()
        assert running.end() == "handed back"
        before = harness.chunks(job_id)
        assert before

    weights.write_text("new")
    with started() as heir:
        later = make_harness(heir)
        assert later.run(job_id) == "done"
        chunks = later.chunks(job_id)
        assert {chunk.attempt for chunk in chunks} == {2}
        assert len({chunk.fingerprint for chunk in chunks}) == 1
        assert chunks[0].fingerprint != before[0].fingerprint
        assert later.job(job_id).fingerprint == chunks[0].fingerprint
        cost = later.cost(job_id)
        assert cost.wasted_ns == sum(chunk.heard.engine_ns for chunk in before)
        assert cost.billable_ns == sum(chunk.heard.engine_ns for chunk in chunks)
        assert cost.audio_seconds == 130.0
        assert audit(later.db, later.objects).breaches == []


def test_weights_that_change_while_a_job_runs_send_it_back(
    make_harness: Callable[..., WorkerHarness], tmp_path: Path, gate: Path
) -> None:
    # Given a job whose language model is written anew while its first batch is on the device
    with started() as engine:
        harness = make_harness(engine)
        job_id = harness.submit(harness.record("a.wav", speechlike(60)), "gated", language_model="town")
        running = harness.start(job_id)
        until(gate.with_suffix(".reached").exists, "a batch at the gate")
        (harness.folder / "town.arpa").write_text("another town's words")
        gate.touch()
        assert running.end() == "handed back"
        assert harness.chunks(job_id) == []
        assert WeightsChanged.retryable

        # Then the next attempt is decoded by the new one throughout, and no second is lost
        assert harness.run(job_id) == "done"
        assert transcript_of(harness, job_id).language_model is not None
        assert harness.cost(job_id).wasted_ns > 0
        harness.assert_bills_equal_busy_time()
        assert audit(harness.db, harness.objects).breaches == []
