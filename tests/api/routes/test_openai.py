"""OpenAI's own client against our route; a worker is played by the store."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from api.routes.openai import reads_prompts
from ops.testbed.rows import chunk
from ops.testbed.running_api import Live, problem, transcript_of
from ops.testbed.waiting import until
from spool.domain import AnnouncedModel, DecodedChunk, Job, JobState
from spool.formats import render
from spool.ids import new_id
from spool.settings import Settings
from spool.store import JobFilter, Outcome, finish_job, list_jobs, register_worker, set_default_model

SOUND = ("tape.wav", b"RIFF" + bytes(400))


@pytest.fixture
def client(live: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def the_job(live: Live) -> Job:
    """The only job there is, once it is there."""

    def jobs() -> tuple[Job, ...]:
        with live.services.database.read() as tx:
            return tuple(list_jobs(tx, JobFilter(), limit=2).items)

    until(jobs, "a job")
    (job,) = jobs()
    return job


def worked(live: Live, *, error: str | None = None) -> threading.Thread:
    """A worker that does the one job that comes, or fails it."""

    def work() -> None:
        job = the_job(live)
        if error is None:
            live.work().finish(job.id)
        else:
            live.work().fail(job.id, error, "It is a text file.")

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def spoken(index: int, text: str) -> DecodedChunk:
    """A chunk between two pauses: nothing was heard beyond its core."""
    one = chunk(index)
    words = tuple(one.heard.words[0].model_copy(update={"text": word}) for word in text.split())
    return DecodedChunk(
        replace(one.span, start=one.span.core_start, end=one.span.core_end), replace(one.heard, words=words)
    )


def test_json_is_the_text(client: openai.OpenAI, live: Live) -> None:
    working = worked(live)
    answer = client.audio.transcriptions.create(model="whisper-1", file=SOUND)
    working.join()
    assert answer.text == "keep the light"
    job = the_job(live)
    assert (job.name, job.options.model, job.options.decoder) == ("tape.wav", "demo-tdt", "greedy")


def test_verbose_json_has_words_and_segments_with_times(client: openai.OpenAI, live: Live) -> None:
    working = worked(live)
    answer = client.audio.transcriptions.create(
        model="demo-tdt",
        file=SOUND,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        prompt="Heligoland, fog horn",
    )
    working.join()
    assert (answer.text, float(answer.duration)) == ("keep the light", 1.5)
    assert answer.words is not None
    assert [(word.word, word.start, word.end) for word in answer.words][1] == ("the", 0.5, 0.9)
    assert answer.segments is not None
    assert [segment.text for segment in answer.segments] == ["keep the light"]
    job = the_job(live)
    assert job.options.decoder == "beam"
    assert job.options.boost is not None


def test_language_and_translation_are_options_of_the_job(client: openai.OpenAI, live: Live) -> None:
    working = worked(live)
    client.audio.transcriptions.create(model="whisper-1", file=SOUND, language="en")
    working.join()
    options = the_job(live).options
    assert (options.language, options.task) == ("en", "transcribe")


def test_translations_ask_for_english(http: httpx.Client, live: Live) -> None:
    working = worked(live)  # the client's own method warns that it is deprecated
    answer = http.post("/v1/audio/translations", data={"model": "whisper-1"}, files={"file": SOUND})
    working.join()
    assert answer.json()["text"] == "keep the light"
    assert the_job(live).options.task == "translate"


def test_a_prompt_is_one_where_the_model_reads_prompts(
    live: Live, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    fleet = live.services.fleet
    settings = make_settings(models={"base": "whisper-base", "demo-tdt": "demo-tdt", "own": str(tmp_path)})
    asked = ("base", "demo-tdt", "own", "theirs")
    assert [name for name in asked if reads_prompts(fleet, settings, name)] == ["base"]

    # What a worker says of its models counts before what their names say
    facts = {"theirs": AnnouncedModel("canary"), "base": AnnouncedModel("nemo")}
    info = replace(live.work().info, id=new_id("wrk"), name="mini", model_facts=facts)
    with live.services.database.begin() as tx:
        set_default_model(tx, "theirs")
        register_worker(tx, info)
    fleet.read()
    reading = [name for name in (*asked, None) if reads_prompts(fleet, settings, name)]
    assert reading == ["theirs", None]


def test_a_recording_that_no_worker_can_take_does_not_wait_in_silence(
    http: httpx.Client, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.routes.openai.UNSERVED_SECONDS", 0.1)
    answer = http.post("/v1/audio/transcriptions", files={"file": SOUND})
    assert "waits for a worker with model" in problem(answer, 503, "no_worker")["detail"]
    assert answer.headers["Retry-After"] == "60"
    assert the_job(live).state is JobState.CANCELLED

    asked: dict[str, Any] = {"data": {"stream": "true"}, "files": {"file": SOUND}}
    assert '"code": "no_worker"' in http.post("/v1/audio/transcriptions", **asked).text


def test_a_language_that_is_none_is_refused(http: httpx.Client, live: Live) -> None:
    asked: dict[str, Any] = {"data": {"language": "German"}, "files": {"file": SOUND}}
    problem(http.post("/v1/audio/transcriptions", **asked), 422, "invalid_request")


@pytest.mark.parametrize(
    ("form", "start"), [("text", "keep the light\n"), ("srt", "1\n00:00:00,000"), ("vtt", "WEBVTT\n")]
)
def test_text_and_subtitles(client: openai.OpenAI, live: Live, form: str, start: str) -> None:
    working = worked(live)
    answer = client.audio.transcriptions.create(model="whisper-1", file=SOUND, response_format=form)  # type: ignore[call-overload]
    working.join()
    assert answer.startswith(start)


def test_an_answer_is_streamed_in_deltas_that_add_up_to_its_text(client: openai.OpenAI, live: Live) -> None:
    with client.audio.transcriptions.create(model="whisper-1", file=SOUND, stream=True) as stream:
        worker = live.work()
        claim = worker.claim(the_job(live).id)
        worker.save(claim, spoken(0, "keep the"))
        worker.save(claim, spoken(2, "to the left"))  # chunk 1 is not there yet
        first = next(stream)  # before the recording is done
        worker.finish(claim.job.id, ("keep", "the", "light"), claim=claim)
        second, done = list(stream)
    assert first.type == second.type == "transcript.text.delta"
    assert (first.delta, second.delta) == ("keep the", " light")
    assert done.type == "transcript.text.done"
    assert done.text == "keep the light"


def test_words_that_a_neighbor_may_change_are_streamed_at_the_end(client: openai.OpenAI, live: Live) -> None:
    with client.audio.transcriptions.create(model="whisper-1", file=SOUND, stream=True) as stream:
        worker = live.work()
        claim = worker.claim(the_job(live).id)
        worker.save(claim, spoken(0, "keep the"))
        overlapping = spoken(1, "lie")
        span = replace(overlapping.span, end=overlapping.span.core_end + 16_000)
        worker.save(claim, replace(overlapping, span=span))
        assert getattr(next(stream), "delta", "") == "keep the"
        worker.finish(claim.job.id, ("keep", "the", "light"), claim=claim)
        assert [getattr(event, "delta", "") for event in stream] == [" light", ""]


def test_a_stream_says_what_went_wrong(client: openai.OpenAI, live: Live) -> None:
    working = worked(live, error="audio_unreadable")
    stream = client.audio.transcriptions.create(model="whisper-1", file=SOUND, stream=True)
    with pytest.raises(openai.APIError, match="It is a text file"):
        list(stream)
    working.join()


def test_models_are_listed_as_that_api_lists_them(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo-tdt"]


def test_a_model_is_retrieved_under_our_names_and_theirs(client: openai.OpenAI) -> None:
    (listed,) = client.models.list()
    assert client.models.retrieve("demo-tdt").model_dump().items() >= listed.model_dump().items()
    theirs = client.models.retrieve("whisper-1").model_dump()
    assert (theirs["id"], theirs["name"]) == ("whisper-1", "demo-tdt")
    with pytest.raises(openai.NotFoundError, match="Available models: demo-tdt"):
        client.models.retrieve("gpt-9")


def test_a_recording_that_cannot_be_read_says_so(client: openai.OpenAI, live: Live) -> None:
    working = worked(live, error="audio_unreadable")
    with pytest.raises(openai.UnprocessableEntityError, match="It is a text file"):
        client.audio.transcriptions.create(model="whisper-1", file=SOUND)
    working.join()


def test_what_spool_has_not_is_refused_before_there_is_a_job(http: httpx.Client, live: Live) -> None:
    def ask(**fields: str) -> httpx.Response:
        return http.post("/v1/audio/transcriptions", data=fields, files={"file": SOUND})

    problem(ask(model="parakeet-9"), 422, "unknown_model")
    problem(ask(response_format="docx"), 422, "invalid_request")
    problem(ask(stream="true", response_format="srt"), 422, "invalid_request")
    problem(ask(colour="red"), 422, "invalid_request")
    problem(http.post("/v1/audio/transcriptions", json={}), 415, "unsupported_media_type")
    with live.services.database.read() as tx:
        assert list_jobs(tx, JobFilter()).items == ()


def test_a_client_that_hangs_up_cancels_its_job(http: httpx.Client, live: Live) -> None:
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/audio/transcriptions", files={"file": SOUND}, timeout=httpx.Timeout(60, read=1.0))
    until(lambda: the_job(live).state is JobState.CANCELLED, "the job cancelled")


def test_an_answer_does_not_wait_for_ever(
    http: httpx.Client, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.routes.openai.WAIT_SECONDS", 0.1)
    problem(http.post("/v1/audio/transcriptions", files={"file": SOUND}), 504, "too_long")
    assert the_job(live).state is JobState.CANCELLED


def test_under_a_key_the_same_recording_is_one_job_that_can_be_asked_for_again(
    http: httpx.Client, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.routes.openai.WAIT_SECONDS", 0.1)
    asked: dict[str, Any] = {"files": {"file": SOUND}, "headers": {"Idempotency-Key": "talk-1"}}
    problem(http.post("/v1/audio/transcriptions", **asked), 504, "too_long")
    live.work().finish(the_job(live).id)
    monkeypatch.setattr("api.routes.openai.WAIT_SECONDS", 60.0)
    answer = http.post("/v1/audio/transcriptions", **asked)
    assert answer.json() == {"text": "keep the light"}
    assert answer.headers["X-Spool-Job"] == the_job(live).id


def test_diarized_json_says_who_speaks(client: openai.OpenAI, live: Live) -> None:
    def work() -> None:
        job = the_job(live)
        record = transcript_of(job.id, ("keep", "watch"))
        (segment,) = record.segments
        words = tuple(word.model_copy(update={"speaker": "speaker_1"}) for word in record.words)
        segments = (segment.model_copy(update={"speaker": "speaker_1"}),)
        spoken = record.model_copy(update={"words": words, "segments": segments})
        claim = live.work().claim(job.id)
        key = f"jobs/{job.id}/attempt-1/transcript.json"
        stored = live.services.objects.put_bytes(key, render(spoken, "json").encode())
        with live.services.database.begin() as tx:
            finish_job(tx, claim, Outcome(1.0, key, stored.sha256 or "", 1.0, 2))

    working = threading.Thread(target=work)
    working.start()
    answer = client.audio.transcriptions.create(
        model="gpt-4o-transcribe-diarize",
        file=SOUND,
        response_format="diarized_json",
        chunking_strategy={"type": "server_vad", "threshold": 0.5},
    )
    working.join()
    assert [(each.speaker, each.text) for each in answer.segments] == [("B", "keep watch")]
    assert the_job(live).options.diarization is not None
    with pytest.raises(openai.UnprocessableEntityError, match="Known speakers"):
        client.audio.transcriptions.create(
            model="whisper-1",
            file=SOUND,
            response_format="diarized_json",
            extra_body={"known_speaker_names": ["Ada"]},
        )
