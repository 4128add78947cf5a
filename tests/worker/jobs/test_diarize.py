"""Speakers of jobs: real voices through the engine, on the bill, found again without decoding a word."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from sqlalchemy import func, select

from ops.testbed.fake_models import RATE
from ops.testbed.jobs import WorkerHarness
from ops.testbed.rows import let_lapse
from spool.audit import audit
from spool.domain import Content, Diarization, JobState, Transcript
from spool.errors import Conflict, InvalidRequest
from spool.store import cancel_job, claim_job, diarize_job, load_passes, mark_deleted, matches, name_speakers
from spool.tables import channel_passes
from tests.worker.models.sortformer.golden import OFFLINE, STREAMING
from tests.worker.models.sortformer.golden import archive as archive_of
from tests.worker.speech.sounds import noise
from tests.worker.speech.voices import OTHERS, READERS, TWO_SPEAKERS, mixed, voice
from worker.diarization import (
    SpeakerActivity,
    SpeakerBounds,
    label_words,
    load_diarization,
    load_network,
    run_here,
)
from worker.engine import Engine
from worker.jobs import run_claimed
from worker.speech import SpeechDetector

pytestmark = pytest.mark.integration


@pytest.fixture
def worker_settings() -> dict[str, object]:
    return {
        "models": {"plain": "plain", "other": "plain+weights=/dev/null"},
        "diarization_models": {
            "sortformer": str(archive_of(STREAMING)),
            "at-once": str(archive_of(OFFLINE)),
            "broken": "/nowhere/gone.nemo",
        },
        "default_model": "plain",
        "lease_seconds": 20.0,
        "heartbeat_seconds": 1.0,
    }


def transcript_of(harness: WorkerHarness, job_id: str) -> Transcript:
    job = harness.job(job_id)
    assert job.state is JobState.DONE, (job.error_code, job.error_message)
    return record_of(harness, job_id)


def record_of(harness: WorkerHarness, job_id: str) -> Transcript:
    return Transcript.model_validate_json(harness.read(harness.job(job_id).transcript_key or ""))


def two_speakers(harness: WorkerHarness) -> Path:
    samples, _ = soundfile.read(TWO_SPEAKERS, dtype="float32")
    return harness.record("talk.wav", np.asarray(samples, np.float32))


def assert_lawful(harness: WorkerHarness) -> None:
    assert harness.assert_bills_equal_busy_time() > 0
    report = audit(harness.db, harness.objects)
    assert {b.rule for b in report.breaches} <= {"source"}, report.breaches


def ask_again(harness: WorkerHarness, job_id: str, **diarization: object) -> None:
    with harness.db.begin() as tx:
        diarize_job(tx, job_id, Diarization.model_validate(diarization))


def test_a_job_s_words_have_speakers_and_its_bill_their_time(harness: WorkerHarness) -> None:
    job_id = harness.submit(two_speakers(harness), diarization={})
    assert harness.run(job_id) == "done"
    transcript, job = transcript_of(harness, job_id), harness.job(job_id)
    assert [speaker.label for speaker in transcript.speakers] == ["speaker_0", "speaker_1"]
    assert transcript.words[0].speaker == "speaker_0"
    assert {word.speaker for word in transcript.words} == {"speaker_0", "speaker_1"}
    for segment in transcript.segments:
        inside = transcript.words[segment.first_word : segment.last_word + 1]
        assert {word.speaker for word in inside} == {segment.speaker}
    assert [each["label"] for each in job.speakers or ()] == ["speaker_0", "speaker_1"]
    assert sum(speaker.words for speaker in transcript.speakers) == job.words
    with harness.db.read() as tx:
        (turns,) = load_passes(tx, job_id, "speakers")
    assert turns.engine_ns > 0
    saved_ns = sum(chunk.heard.engine_ns for chunk in harness.chunks(job_id))
    assert round(harness.cost(job_id).engine_seconds * 1e9) == saved_ns + turns.engine_ns
    assert harness.cost(job_id).audio_seconds == job.audio_seconds
    assert_lawful(harness)


def test_speakers_are_asked_for_a_finished_job_without_decoding_a_word(harness: WorkerHarness) -> None:
    job_id = harness.submit(two_speakers(harness))
    assert harness.run(job_id) == "done"
    before, chunks = transcript_of(harness, job_id), harness.chunks(job_id)
    assert before.speakers == ()
    key = harness.job(job_id).transcript_key

    ask_again(harness, job_id, speakers=2)
    assert harness.job(job_id).transcript_key == key, "it can be read meanwhile"
    assert harness.run(job_id) == "done"
    after = transcript_of(harness, job_id)
    assert [word.text for word in after.words] == [word.text for word in before.words]
    assert len(after.speakers) == 2
    assert after.options["diarization"] == {
        "model": "default",
        "speakers": 2,
        "within_channels": False,
        "voice_prints": False,
    }
    assert harness.chunks(job_id) == chunks
    assert harness.objects.head(key or "") is None, "of two transcripts the later one is kept"
    assert_lawful(harness)

    # A transcript of the same recording that was asked for in the same way is taken over, speakers included.
    path = harness.folder / "talk.wav"
    decoded = harness.decoded
    with harness.db.begin() as tx:
        tx.exec_driver_sql("UPDATE jobs SET reuse = 1")
    other = harness.submit(path, diarization={"speakers": 2})
    with harness.db.begin() as tx:
        tx.exec_driver_sql("UPDATE jobs SET reuse = 1")
    assert harness.run(other) == "done"
    assert harness.job(other).reused_from == job_id
    assert transcript_of(harness, other).speakers == after.speakers
    assert harness.decoded == decoded


@pytest.mark.parametrize("name", ["sortformer", "at-once"])
def test_a_sortformer_hears_a_job_in_the_engine_and_on_its_bill(harness: WorkerHarness, name: str) -> None:
    asked = {"model": name, "speakers": {"max": 4}}
    job_id = harness.submit(two_speakers(harness), diarization=asked)
    assert harness.run(job_id) == "done"
    transcript = transcript_of(harness, job_id)
    facts = transcript.diarization
    assert facts is not None
    assert (facts.name, facts.note) == (name, "")
    samples, _ = soundfile.read(two_speakers(harness), dtype="float32")
    model = load_diarization(str(archive_of(STREAMING if name == "sortformer" else OFFLINE)))
    alone = model.diarize(
        lambda: iter([np.asarray(samples, np.float32)]),
        run_here(load_network(model.path)),
        SpeakerBounds(1, 4),
    )
    expected = sorted((round(each.start, 3), round(each.end, 3)) for each in alone.segments)
    assert sorted((turn.start, turn.end) for turn in transcript.turns) == expected
    with harness.db.read() as tx:
        (turns,) = load_passes(tx, job_id, "speakers")
    assert turns.engine_ns > 0
    given = label_words(transcript.words, alone.segments, alone.activity)[0]
    assert [word.speaker for word in transcript.words] == [
        each and f"speaker_{each.speaker}" for each in given
    ]
    assert turns.frames is not None
    assert alone.activity is not None
    kept = SpeakerActivity.unpack(turns.frames)
    assert np.abs(kept.levels.astype(int) - alone.activity.levels).max() <= 1, "rounding alone"
    assert_lawful(harness)


def test_more_than_four_speakers_are_the_default_diarizers(harness: WorkerHarness) -> None:
    job_id = harness.submit(two_speakers(harness), diarization={"model": "sortformer", "speakers": 5})
    assert harness.run(job_id) == "done"
    facts = transcript_of(harness, job_id).diarization
    assert facts is not None
    assert facts.name == "default"
    assert facts.note.startswith("the default diarizer took over: there are more speakers than sortformer")
    before = transcript_of(harness, job_id)
    ask_again(harness, job_id, model="default", speakers=5)
    assert harness.run(job_id) == "done"
    assert transcript_of(harness, job_id).turns == before.turns
    assert_lawful(harness)


@pytest.mark.parametrize("name", ["broken", "nobody"])
def test_a_diarization_model_that_is_not_here_fails_before_a_word_is_decoded(
    harness: WorkerHarness, name: str
) -> None:
    decoded = harness.decoded
    job_id = harness.submit(two_speakers(harness), diarization={"model": name})
    harness.run(job_id)
    job = harness.job(job_id)
    assert harness.decoded == decoded
    assert name in (job.error_message or "") or "gone.nemo" in (job.error_message or ""), job


def test_speakers_that_were_not_found_anew_are_asked_for_once_more(harness: WorkerHarness) -> None:
    path = two_speakers(harness)
    job_id = harness.submit(path)
    assert harness.run(job_id) == "done"
    before, chunks = transcript_of(harness, job_id), harness.chunks(job_id)

    ask_again(harness, job_id, model="broken")
    assert harness.run(job_id) == "failed"
    assert record_of(harness, job_id) == before, "it can be read all the same"
    ask_again(harness, job_id, speakers=2)
    with harness.db.begin() as tx:
        cancel_job(tx, job_id)
    assert harness.job(job_id).state is JobState.CANCELLED
    assert record_of(harness, job_id) == before
    with path.open("ab") as file:
        file.write(b"more")
    ask_again(harness, job_id, speakers=2)
    assert harness.run(job_id) == "failed"
    assert harness.job(job_id).error_code == "source_changed", (
        "nobody's words get another recording's speakers"
    )
    path.write_bytes(path.read_bytes()[:-4])
    ask_again(harness, job_id, speakers=2)
    assert harness.run(job_id) == "done"
    assert len(transcript_of(harness, job_id).speakers) == 2
    assert [word.text for word in transcript_of(harness, job_id).words] == [
        word.text for word in before.words
    ]
    assert harness.chunks(job_id) == chunks
    assert_lawful(harness)


def test_the_detector_that_heard_the_words_is_not_run_again(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    follow = SpeechDetector.follow

    def counted(self: SpeechDetector, blocks: Iterable[np.ndarray]) -> tuple[np.ndarray, int]:
        runs.append(self)
        return follow(self, blocks)

    monkeypatch.setattr(SpeechDetector, "follow", counted)
    job_id = harness.submit(two_speakers(harness), diarization={}, speech_detector=True)
    assert harness.run(job_id) == "done"
    assert not runs
    first = transcript_of(harness, job_id)
    ask_again(harness, job_id, speakers={"min": 1})  # other options, so that saved turns are not taken
    assert harness.run(job_id) == "done"
    assert len(runs) == 1
    assert transcript_of(harness, job_id).turns == first.turns
    assert_lawful(harness)


def test_the_diarizers_own_time_is_on_the_bill(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[int] = []
    add_busy = Engine.add_busy

    def counted(self: Engine, ns: int) -> None:
        added.append(ns)
        add_busy(self, ns)

    monkeypatch.setattr(Engine, "add_busy", counted)
    job_id = harness.submit(two_speakers(harness), diarization={})
    assert harness.run(job_id) == "done"
    with harness.db.read() as tx:
        (turns,) = load_passes(tx, job_id, "speakers")
    assert 0 < sum(added) < turns.engine_ns, "the speech detector's and the clustering's, beside the engine's"
    saved_ns = sum(chunk.heard.engine_ns for chunk in harness.chunks(job_id))
    assert round(harness.cost(job_id).engine_seconds * 1e9) == saved_ns + turns.engine_ns
    assert_lawful(harness)


def test_names_stay_when_speakers_are_found_anew(harness: WorkerHarness) -> None:
    job_id = harness.submit(two_speakers(harness), diarization={"speakers": 1})
    assert harness.run(job_id) == "done"
    with harness.db.begin() as tx:
        name_speakers(tx, job_id, {"speaker_0": "Ada"})
    with pytest.raises(InvalidRequest, match="speaker_1"), harness.db.begin() as tx:
        name_speakers(tx, job_id, {"speaker_1": "Bert"})
    before = transcript_of(harness, job_id)
    ask_again(harness, job_id, speakers=2)
    assert harness.run(job_id) == "done"
    after, job = transcript_of(harness, job_id), harness.job(job_id)
    counts = {each.label: each.words for each in after.speakers}
    assert len(before.speakers) == 1
    assert job.speaker_names == {max(counts, key=lambda label: counts[label]): "Ada"}
    assert_lawful(harness)


def test_voice_prints_are_kept_where_they_were_asked_for(harness: WorkerHarness) -> None:
    plain, asked = (
        harness.submit(two_speakers(harness), diarization={"speakers": 2, "voice_prints": wanted})
        for wanted in (False, True)
    )
    assert [harness.run(plain), harness.run(asked)] == ["done", "done"]
    with harness.db.begin() as tx:
        name_speakers(tx, asked, {"speaker_0": "Ada"}, remember=True)
    ask_again(harness, plain, speakers=2, voice_prints=True)
    assert harness.run(plain) == "done"
    with harness.db.read() as tx:
        heard = matches(tx, plain, harness.job(plain).project)
        turns = load_passes(tx, asked, "speakers")
    assert [(each.voice.name, each.similarity) for each in heard["speaker_0"]] == [("Ada", 1.0)]
    assert heard["speaker_1"] == []
    assert [each.prints for each in turns] == [None], "of use until the job ends"

    ask_again(harness, asked, speakers=2, voice_prints=True)  # the same turns: nothing is listened to again
    assert harness.run(asked) == "done"
    with harness.db.read() as tx:
        assert matches(tx, plain, harness.job(plain).project)["speaker_0"] != []
    ask_again(harness, asked, speakers=2)
    assert harness.run(asked) == "done"
    with harness.db.read() as tx:
        assert matches(tx, asked, harness.job(asked).project) == {}
    assert_lawful(harness)


def test_channels_kept_apart_are_a_speaker_each_unless_asked_further(harness: WorkerHarness) -> None:
    talk, _ = mixed([READERS[0], READERS[3]])
    both = np.stack([talk, np.roll(voice_of_length(len(talk)), RATE)], axis=1)
    path = harness.record("two.wav", both)
    plain = harness.submit(path, channels="separate", diarization={})
    assert harness.run(plain) == "done"
    transcript = transcript_of(harness, plain)
    assert [speaker.channel for speaker in transcript.speakers] == [0, 1]
    assert all(word.speaker == f"speaker_{word.channel}" for word in transcript.words)
    assert any(word.overlap for word in transcript.words)
    with harness.db.read() as tx:
        assert tx.scalar(select(func.count()).select_from(channel_passes)) == 0

    ask_again(harness, plain, within_channels=True)
    assert harness.run(plain) == "done"
    transcript = transcript_of(harness, plain)
    homes: dict[str | None, set[int]] = {}
    for word in transcript.words:
        homes.setdefault(word.speaker, set()).add(word.channel)
    assert len(homes) == 3
    assert all(len(channels) == 1 for channels in homes.values()), "no speaker of two channels is one"
    assert_lawful(harness)


def voice_of_length(samples: int) -> np.ndarray:
    clip = voice(OTHERS[2])
    return np.resize(clip, samples)


@pytest.mark.parametrize(
    ("samples", "speakers"),
    [
        (noise(5.0), 0),
        (voice(READERS[1])[:RATE], 1),
        (np.concatenate([voice(READERS[2]), voice(READERS[2])]), 1),
    ],
    ids=["nobody speaks", "one second", "one speaker"],
)
def test_recordings_with_little_to_tell_apart(
    harness: WorkerHarness, samples: np.ndarray, speakers: int
) -> None:
    job_id = harness.submit(harness.record("short.wav", samples), diarization={})
    assert harness.run(job_id) == "done"
    transcript = transcript_of(harness, job_id)
    assert len(transcript.speakers) == speakers
    assert transcript.diarization is not None
    harness.assert_bills_equal_busy_time()


@pytest.mark.parametrize("name", ["default", "sortformer"])
def test_an_attempt_that_follows_listens_to_nothing_twice(harness: WorkerHarness, name: str) -> None:
    job_id = harness.submit(two_speakers(harness), diarization={"model": name})
    with harness.db.begin() as tx:
        claim = claim_job(tx, job_id, harness.worker_id, harness.settings.lease_seconds)
    assert claim is not None
    refused, harness.objects.put_bytes = harness.objects.put_bytes, _refuse  # type: ignore[method-assign]
    assert run_claimed(harness.services, claim) == "handed back"
    harness.objects.put_bytes = refused  # type: ignore[method-assign]
    decoded = harness.decoded
    with harness.db.read() as tx:
        saved = load_passes(tx, job_id, "speakers")
    assert harness.run(job_id) == "done"
    assert harness.decoded == decoded, "neither words nor speakers"
    with harness.db.read() as tx:
        assert load_passes(tx, job_id, "speakers") == saved != []
    transcript = transcript_of(harness, job_id)
    assert transcript.diarization is not None
    assert transcript.diarization.name == name
    assert len(transcript.speakers) == 2 or name == "sortformer"
    assert_lawful(harness)


def _refuse(*_: object, **__: object) -> Any:
    from spool.errors import StorageError

    raise StorageError("The object store does not answer.")


def test_a_worker_that_lost_the_job_pays_for_what_it_heard(harness: WorkerHarness) -> None:
    job_id = harness.submit(two_speakers(harness), diarization={})
    with harness.db.begin() as tx:
        stale = claim_job(tx, job_id, harness.worker_id, harness.settings.lease_seconds)
    assert stale is not None
    let_lapse(harness.db, job_id)
    assert harness.run(job_id) == "done"
    assert run_claimed(harness.services, stale) == "lost"
    harness.services.context.wasted.write()
    harness.assert_bills_equal_busy_time()
    with harness.db.read() as tx:
        assert len(load_passes(tx, job_id, "speakers")) == 1


def test_what_is_deleted_leaves_no_speaker(harness: WorkerHarness) -> None:
    job_id = harness.submit(two_speakers(harness), diarization={})
    assert harness.run(job_id) == "done"
    with harness.db.begin() as tx:
        name_speakers(tx, job_id, {"speaker_0": "Ada"})
        mark_deleted(tx, [job_id], Content.TRANSCRIPT, "operator")
    assert harness.job(job_id).speakers is None
    with harness.db.read() as tx:
        assert load_passes(tx, job_id, "speakers") == []
    with pytest.raises(Exception, match="deleted"):
        ask_again(harness, job_id)
    report = audit(harness.db, harness.objects)
    assert {b.rule for b in report.breaches} <= {"source", "deleted"}
    assert not [b for b in report.breaches if "traces" in b.message]


def test_only_a_finished_job_is_asked(harness: WorkerHarness) -> None:
    job_id = harness.submit(two_speakers(harness))
    with pytest.raises(Conflict, match="once it has a transcript"):
        ask_again(harness, job_id)
    with pytest.raises(Conflict, match="has no speakers"), harness.db.begin() as tx:
        name_speakers(tx, job_id, {"speaker_0": "Ada"})
