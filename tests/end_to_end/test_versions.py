"""A recording run again through the real worker command, the search of what else was heard in it, and a
glossary that takes up a correction, and a language model, that change the words."""

from pathlib import Path
from typing import Any

from sqlalchemy import update

from api.submission.glossaries import GlossaryLookup
from ops.testbed.processes import REAL, Fleet, drained
from ops.testbed.waiting import until
from spool.audit import audit
from spool.comparison import compare
from spool.domain import (
    AskedOptions,
    Job,
    JobOptions,
    ModelFacts,
    Rescoring,
    Transcript,
    WholeRecord,
    parse_query,
    phrase_list,
)
from spool.objects import hash_file, object_store
from spool.store import (
    JobFilter,
    NewEdit,
    NewJob,
    TranscriptSearch,
    add_edit,
    add_version,
    key_of,
    rerun_job,
    search_transcripts,
    versions_of,
)
from spool.store.archive.language_models import add_version as add_model
from spool.tables import review_passages, review_recordings
from worker.local import build_language_model
from worker.models import Tokenizer

SAMPLES = Path(__file__).parents[2] / "samples" / "demo-tdt" / "words"


def with_glossary(fleet: Fleet, job: Job, record: Transcript) -> Job:
    """The recording of `job` again, with a glossary that takes up what a person wrote: another reading of its
    one word."""
    heard = [text.text for chunk in record.nbest for text in chunk.hypotheses]
    reading = next(text for text in heard if text and text != record.text and " " not in text)
    with fleet.db.begin() as tx:
        add_version(tx, job.project, "names", phrase_list(["zoo"]), 1, "Bo", auto_add_after=1)
        add_edit(tx, job.id, WholeRecord(record), NewEdit(0, 0, reading.capitalize(), None, 0, "Bo"))
    lookup = GlossaryLookup(fleet.db, job.project)
    options = job.options.model_dump(mode="json", exclude={"live", "boost", "align"})
    asked = AskedOptions.model_validate(lookup.with_phrases(options | {"boost": {"glossary": "names"}}))
    assert asked.boost is not None
    assert asked.boost.phrases == (reading.capitalize(), "zoo")
    with fleet.db.begin() as tx:
        new = NewJob(job.source, asked.job_options(), job.name, phrases=asked.boost.phrase_list)
        corrected, _ = rerun_job(tx, job, new)
    fleet.send(corrected.id)
    return corrected


def with_language_model(fleet: Fleet, job: Job, rescores: bool = False) -> Job:
    """The recording of `job` again, with its project's language model `parish@1`, which decides: in the
    search, or over its list."""
    named: dict[str, Any] = {"language_model": "parish@1", "lm_weight": 3.0}
    if rescores:
        named = {"rescore": Rescoring(model="parish@1", weight=3.0)}
    options = job.options.model_copy(update={**named, "boost": None, "nbest": 1})
    with fleet.db.begin() as tx:
        again, _ = rerun_job(tx, job, NewJob(job.source, options, job.name))
    fleet.send(again.id)
    until(lambda: fleet.ended([again.id]), "the version with the language model has ended")
    return fleet.job(again.id)


def check_language_model(fleet: Fleet, job: Job, reading: str) -> None:
    """A language model of texts that have the reading alone changes the words to it. A worker whose copy is
    damaged fetches another; where the store has none, that job fails and says so."""
    text, file = fleet.home / "text.txt", fleet.home / "built.arpa"
    text.write_text(f"{reading}\n" * 20, encoding="utf-8")
    tokenizer = Tokenizer.from_file(SAMPLES.parents[2] / "models" / "demo" / "tokenizer.model")
    built = build_language_model([text], tokenizer, 3, file)
    objects, sha256 = object_store(fleet.settings), hash_file(file)[0]
    objects.put_file(key_of(sha256), file)
    facts: dict[str, Any] = {
        "sha256": sha256,
        "size": file.stat().st_size,
        "model": "demo-tdt",
        "author": "Bo",
    }
    with fleet.db.begin() as tx:
        add_model(tx, job.project, "parish", ngram_order=built.order, ngrams=built.ngrams, **facts)

    heard = fleet.transcript(with_language_model(fleet, job).id)
    assert heard.text.lower() == reading.lower()
    assert heard.language_model == ModelFacts(name="parish@1", sha256=sha256)

    copy = fleet.home / "language-models" / f"{sha256}.arpa"
    copy.write_bytes(b"spoilt")
    assert fleet.transcript(with_language_model(fleet, job).id).text == heard.text
    assert copy.read_bytes() == file.read_bytes()

    read = fleet.transcript(with_language_model(fleet, job, rescores=True).id)
    assert (read.text, read.language_model) == (heard.text, None)
    assert read.options["rescore"] == {"model": "parish@1", "weight": 3.0}

    copy.unlink()
    objects.delete(key_of(sha256))
    failed = with_language_model(fleet, job)
    assert failed.error_code == "not_found"
    assert "file of language model parish@1 is not in the object store" in (failed.error_message or "")
    objects.put_file(key_of(sha256), file)


def test_a_recording_is_run_again_and_both_versions_stay(
    tmp_path: Path, sqlite_url: str, redis_url: str
) -> None:
    fleet = Fleet(tmp_path, sqlite_url, redis_url, SPOOL_SOURCE_ROOTS=str(SAMPLES))
    try:
        first = fleet.submit(SAMPLES / "cat-1.flac", "demo-tdt")
        worker = fleet.start(*REAL)
        until(lambda: fleet.ended([first]), "the first version is done")
        before = fleet.transcript(first)
        beam = {"model": "demo-tdt", "speech_detector": False, "decoder": "beam", "beam": 8, "nbest": 8}
        job = fleet.job(first)
        with fleet.db.begin() as tx:
            new = NewJob(job.source, JobOptions.model_validate(beam), job.name)
            other, created = rerun_job(tx, job, new)
        assert created
        fleet.send(other.id)
        until(lambda: fleet.ended([other.id]), "the second version is done")
        after = fleet.transcript(other.id)

        assert fleet.transcript(first) == before
        assert (before.options["decoder"], after.options["decoder"]) == ("greedy", "beam")
        assert before.text.lower() == after.text.lower() == "cat"
        compared = compare(before, after)
        assert (compared.errors.edits, compared.errors.words, compared.differences) == (0, 1, ())
        heard = [text.text for chunk in after.nbest for text in chunk.hypotheses]
        readings = [text for text in heard if text and text != after.text and " " not in text]
        assert readings, heard
        with fleet.db.read() as tx:
            assert [each.id for each in versions_of(tx, fleet.job(other.id))] == [first, other.id]
            query = parse_query(readings[0])
            assert search_transcripts(tx, TranscriptSearch(query, JobFilter())).items == ()
            [hit] = search_transcripts(tx, TranscriptSearch(query, JobFilter(), alternatives=True)).items
        assert (hit.job.id, hit.places[0].text, hit.passage.words[0].text) == (
            other.id,
            readings[0],
            after.text,
        )
        corrected = with_glossary(fleet, other, after)
        until(lambda: fleet.ended([corrected.id]), "the version with the names is done")
        boosted = fleet.transcript(corrected.id)
        assert boosted.text.lower() == readings[0].lower(), "the glossary changed the words"
        boost: Any = boosted.options["boost"]
        assert boost["glossary"] == "names@2"
        check_language_model(fleet, other, readings[0])
        assert drained(worker) == 0
        assert audit(fleet.db, object_store(fleet.settings)).clean
        with fleet.db.begin() as tx:
            tx.execute(update(review_passages).values(errors=7))
        [breach] = audit(fleet.db, object_store(fleet.settings)).breaches
        assert breach[:2] == ("reviewed", other.id), "a passage's errors are those of its corrections"
        with fleet.db.begin() as tx:
            tx.execute(update(review_passages).values(errors=0))
            tx.execute(update(review_recordings).values(unchecked=7))
        breaches = audit(fleet.db, object_store(fleet.settings)).breaches
        assert {each.rule for each in breaches} == {"reviewed"}
        assert other.id in {each.subject for each in breaches}, "a recording's doubt is that of its passages"
        assert fleet.billed_ns() == fleet.workers()[0].engine_busy_ns
    finally:
        fleet.close()
