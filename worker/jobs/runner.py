"""One job's life in a worker, as plain steps: claim, fetch, decode, stitch, deliver, finish.

Knows the order of the steps; each step lives in its own module. An attempt that makes no transcript ends as
`worker.jobs.endings` says. Never raises.
"""

import contextlib
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy import Connection

from spool.domain.archive.diarization import Diarization
from spool.domain.archive.edits import apply_edits
from spool.domain.archive.passages import passages_of
from spool.domain.archive.verbatim import mark_disfluencies
from spool.domain.jobs import JobSpeaker, JobState
from spool.domain.receipts import Origin
from spool.domain.transcript import Transcript
from spool.errors import LeaseLost, StorageError, UnknownModel
from spool.failpoints import failpoint
from spool.objects.integrity import read_verified
from spool.store.chunks import save_chunk
from spool.store.jobs import get_job, hashes_of_source
from spool.store.passes import load_passes
from spool.store.queue.endings import Ending, Outcome, finish_job
from spool.store.queue.leases import Claim
from spool.store.transcripts.edits import edits_of
from spool.store.transcripts.reindexing import index_words
from spool.store.transcripts.review import FinishedJob, doubts_in
from spool.store.transcripts.sounds import copy_sounds
from spool.store.transcripts.voices import copy_prints
from spool.tracing import span
from worker.audio import open_audio
from worker.jobs.align.attempt import AlignAttempt
from worker.jobs.attempt import Attempt, GiveBack
from worker.jobs.claim import beside, hold_next
from worker.jobs.decoding import WAIT_SECONDS, languages_of
from worker.jobs.diarize import SpeakerModels, SpeakerPass
from worker.jobs.endings import FailedAttempt
from worker.jobs.identify import LanguagePass, find_listener, warn_of_language
from worker.jobs.lease import Lease
from worker.jobs.live.recording import KeptRecording, LiveJob
from worker.jobs.output import Delivered, attempt_of, deliver, outcome_of, withdraw
from worker.jobs.places import Places
from worker.jobs.receipt import state
from worker.jobs.retry import retry_storage
from worker.jobs.reuse import Facts, Reuse, fingerprint
from worker.jobs.services import JobServices
from worker.jobs.speakers import carry_names
from worker.jobs.stretch import StretchAttempt
from worker.jobs.tracing import trace_attempt
from worker.jobs.transcript import language_model_facts, refuse_truncated
from worker.jobs.witness import WitnessModel, WitnessPass
from worker.models.base import ModelInfo
from worker.models.requests import DecodeRequest
from worker.speech.listener import detector_digest

log = structlog.get_logger(__name__)


def run_next(services: JobServices, hinted: str | None, *, live: bool = False) -> str | None:
    """Run the next job, beside the short ones that were claimed with it, each in a thread; how it ended, or
    None when none may run here now. `hinted` is the job whose message arrived, if any; live: of live sessions
    alone."""
    with hold_next(services.context, hinted, live=live) as claim:
        if claim is None:
            return None
        failpoint("claim.committed")
        services.claimed(claim)
        with beside(services.context, claim.others, partial(run_claimed, services)):
            return run_claimed(services, claim)


def run_claimed(services: JobServices, claim: Claim) -> str:
    """Run a claimed job; how it ended."""
    context, job_id = services.context, claim.job.id
    lease_seconds, most_seconds = context.settings.lease_seconds, context.settings.max_job_seconds
    try:
        with (
            trace_attempt(claim, context.settings.worker_name) as trace,
            Lease(
                context.db,
                claim,
                lease_seconds,
                most_seconds,
                lambda: context.health.hangs(job_id),
                context.outage_seconds,
            ) as lease,
        ):
            runner = JobRunner(services, claim, lease)
            ending = context.counters.count_ending(runner.run(), runner.code)
            if ending == "done":
                context.appetite.note_ending(runner.engine_ns)
            trace.note(outcome=ending, error=runner.code)
            return ending
    finally:
        context.health.came_back(job_id)
        context.wasted.write()


class JobRunner:
    """The steps of one claimed job."""

    def __init__(self, services: JobServices, claim: Claim, lease: Lease) -> None:
        self._services = services
        self._context = services.context
        self._claim = claim
        self._job = claim.job
        self._lease = lease
        kind = AlignAttempt if claim.job.options.align is not None else Attempt
        kind = StretchAttempt if claim.job.stretch is not None else kind
        self._attempt = kind(services.context, claim, lease)
        self._record: Transcript | None = None  # that the job had before
        self._origin: Origin | None = None  # of words that this attempt did not decode
        self._recording: KeptRecording | None = None  # of a live session
        self._speakers: SpeakerPass | None = None
        self._witness: WitnessPass | None = None
        self.code = ""  # of the error that ended it, if one did

    @property
    def engine_ns(self) -> int:
        """What the attempt has taken of the engine so far."""
        return self._attempt.engine_ns

    def run(self) -> str:
        """Run all steps and write the ending; returns its name."""
        try:
            with self._attempt.answering:
                transcript, facts = self._transcribe()
            with span("finish", self._job.ids):
                self._finish(transcript, facts)
        except Exception as error:  # noqa: BLE001 - whatever it is, the row must say how the attempt ended
            failed = FailedAttempt(self._services, self._attempt)
            ending = failed.end(error)
            self.code = failed.code
            return ending
        self._context.health.job_succeeded(self._job.options.model)
        log.info("done", words=len(transcript.words), seconds=transcript.audio.duration)
        return "done"

    # --- the way to a transcript ----------------------------------------------------------------------------

    def _transcribe(self) -> tuple[Transcript, Facts]:
        attempt, context = self._attempt, self._context
        if self._job.transcript_key is not None and self._job.options.diarization is not None:
            return self._find_speakers_again(self._job.transcript_key, self._job.options.diarization)
        attempt.remember()
        attempt.model = self._find_model()
        attempt.request = attempt.ready_request(self._services.objects)
        info = self._load_model(attempt.model, attempt.request)
        detector = detector_digest() if self._job.options.speech_detector else None
        mark = fingerprint(self._job.options, (*info.makers, detector))
        attempt.begin(info, mark)
        if self._job.source.kind == "live":
            return self._hear_session(info, mark)
        diarization = self._job.options.diarization
        witness = WitnessModel.ready(attempt) if self._job.options.witness else None
        if witness is not None:
            mark = witness.mark(mark, *(["dropped"] if self._job.options.drop_unsupported else []))
        models = None if diarization is None else SpeakerModels.ready(attempt, diarization)
        if models is not None:
            mark = models.transcript_mark(mark)
        if isinstance(attempt, StretchAttempt):
            mark = attempt.transcript_mark(mark)
        reuse = Reuse(
            context.settings, context.db, self._services.objects, self._job, mark, attempt.answering
        )
        transcript = reuse.before_fetch()
        if transcript is None:
            hashes = self._read_hashes()
            with reuse.fetch(self._services.sources, attempt.check, hashes) as path:
                transcript = reuse.after_fetch(path, attempt.check, hashed=hashes is not None)
                if transcript is None:
                    transcript = self._decode(path, info, reuse.facts()["content_sha256"])
                    refuse_truncated(self._job.name, transcript.audio, self._job.options.on_truncated)
                    if models is not None:
                        self._speakers = SpeakerPass(attempt, models)
                        transcript = self._speakers.add_speakers(transcript, path)
                    if witness is not None:
                        self._witness = WitnessPass(attempt, witness)
                        transcript = self._witness.add_evidence(transcript, path)
                    reuse.confirm(path, attempt.check)
        refuse_truncated(self._job.name, transcript.audio, self._job.options.on_truncated)
        self._origin = reuse.origin or attempt.origin
        return self._mark_disfluencies(transcript, info), reuse.facts()

    def _mark_disfluencies(self, transcript: Transcript, info: ModelInfo) -> Transcript:
        options = self._job.options
        return mark_disfluencies(transcript, options.verbatim, languages_of(info, options.model))

    def _find_speakers_again(self, key: str, asked: Diarization) -> tuple[Transcript, Facts]:
        """The transcript that the job has, with its speakers found anew; no word is decoded again."""
        attempt, job, objects = self._attempt, self._job, self._services.objects
        before = Transcript.model_validate_json(read_verified(objects, key, job.transcript_sha256 or ""))
        self._record = before
        self._origin = Origin(job=job.id, transcript_sha256=job.transcript_sha256 or "")
        # That of the words is known where nobody asked for speakers before.
        of_words = None if before.diarization is not None else job.fingerprint
        models = SpeakerModels.ready(attempt, asked)
        mark = None if of_words is None else models.transcript_mark(of_words)
        reuse = Reuse(
            self._context.settings,
            self._context.db,
            objects,
            replace(job, reuse=False),
            mark or "",
            attempt.answering,
        )
        attempt.model = models.model.path
        with reuse.fetch(self._services.sources, attempt.check, self._read_hashes()) as path:
            reuse.after_fetch(path, attempt.check)
            self._speakers = SpeakerPass(attempt, models)
            transcript = self._speakers.add_speakers(before, path)
            reuse.confirm(path, attempt.check)
        facts = reuse.facts()
        facts["fingerprint"], facts["reused_from"] = mark, job.reused_from
        return transcript.model_copy(update={"options": job.options.model_dump(mode="json")}), facts

    def _read_hashes(self) -> bytes | None:
        """Of an upload's blocks."""
        if self._job.source.kind != "upload":
            return None
        with self._context.db.read() as tx:
            return hashes_of_source(tx, self._job.id)

    def _decode(self, path: Path, info: ModelInfo, content_sha256: str | None) -> Transcript:
        attempt = self._attempt
        with attempt.answering.opened(
            partial(
                open_audio,
                path,
                channels=self._job.options.channels,
                name=self._job.name,
                max_seconds=self._context.settings.max_audio_seconds,
            )
        ) as audio:
            failpoint("source.fetched")
            refuse_truncated(self._job.name, audio.known_length, self._job.options.on_truncated)
            attempt.channels = audio.channels
            attempt.pin(audio.expected_seconds, content_sha256)
            languages = languages_of(info, self._job.options.model)
            listener = find_listener(attempt, languages)
            chunks = attempt.plan(audio, detector=self._job.options.speech_detector)
            if listener is not None:
                attempt.places = Places()
                chunks = attempt.places.pick_from(chunks)
            attempt.decode(chunks)
            if listener is not None and attempt.places is not None:
                LanguagePass(attempt, listener, languages[0]).listen(attempt.places.picked, path)
            asked = self._job.options.model_dump(mode="json")
            language_model = language_model_facts(self._job.options, info)
            return attempt.transcript(audio, self._job.id, asked, language_model)

    def _hear_session(self, info: ModelInfo, mark: str) -> tuple[Transcript, Facts]:
        """The transcript of a live session, once its client has ended it."""
        services = self._services
        session = LiveJob(self._attempt, services.objects, services.live, services.sources.folder)
        transcript, self._recording = session.hear(info)
        return self._mark_disfluencies(transcript, info), Facts(
            content_sha256=self._recording.sha256,
            fingerprint=mark,
            source_etag=None,
            source_size=None,
            reused_from=None,
        )

    def _find_model(self) -> str:
        models = self._context.settings.models
        name = self._job.options.model
        if name not in models:
            known = ", ".join(sorted(models))
            raise UnknownModel(f"{self._job.name}: no model {name!r} here; this worker knows {known}.")
        return models[name]

    def _load_model(self, model: str, request: DecodeRequest) -> ModelInfo:
        """Load the models before the recording is fetched: what does not load, or cannot be asked so, fails
        the job cheaply."""
        engine = self._context.engine
        answer: Future[ModelInfo] = engine.prepare(model, request)
        while True:
            with contextlib.suppress(NotYet):
                return answer.result(WAIT_SECONDS)
            self._lease.check()
            if self._context.resting():
                raise GiveBack("the worker takes no jobs now")

    # --- endings --------------------------------------------------------------------------------------------

    def _finish(self, transcript: Transcript, facts: Facts) -> None:
        self._lease.check()

        def store() -> Delivered:
            try:
                return deliver(self._services.objects, self._job.id, self._claim.attempt, transcript)
            except StorageError:
                self._attempt.save_last()  # the ending is some time away
                raise

        delivered = retry_storage(store, self._context.settings.lease_seconds, self._lease.stop)
        failpoint("deliver.stored")
        outcome = outcome_of(transcript, delivered, facts, self._language_warnings(facts))
        try:
            self._write_ending(outcome, transcript)
        except LeaseLost:
            # The answer to our own commit may have been lost on the way; then the row names our transcript.
            if not self._is_ours(delivered.key):
                withdraw(self._services.objects, self._job.id, self._claim.attempt)
                if self._recording is not None:
                    self._recording.withdraw(self._services.objects)
                raise
        self._attempt.note_ending()
        if self._recording is not None:
            self._recording.drop_log(self._services.objects)
        if self._job.transcript_key is not None:
            withdraw(self._services.objects, self._job.id, attempt_of(self._job.transcript_key))

    def _language_warnings(self, facts: Facts) -> list[str]:
        """What another model heard in this recording, now or when its transcript was made."""
        places, origin = self._attempt.places, facts["reused_from"]
        listened = self._claim.attempt > 1 or (places is not None and places.kept)
        if not listened and origin is None:
            return []

        def read() -> list[str]:
            with self._context.db.read() as tx:
                passes = load_passes(tx, origin or self._job.id, "language")
            heard = passes[-1].languages if passes else ()
            warning = warn_of_language(self._job.id, self._job.options.model, heard, self._context.settings)
            return [] if warning is None else [warning]

        return retry_storage(read, self._context.outage_seconds)

    def _write_ending(self, outcome: Outcome, transcript: Transcript) -> None:
        """Commit it, that of a short job with others that end now. Raises LeaseLost and StorageError."""
        attempt, passages = self._attempt, passages_of(transcript)
        last = attempt.last
        statement = state(self._claim, transcript, outcome, attempt.decoded, attempt.info, self._origin)
        context = self._context
        if last is not None:
            ending = Ending(self._claim, outcome, passages, last, statement=statement)
            if context.endings.finish(context.db, ending, transcript, gather=context.job_gate.taken > 1):
                failpoint("finish.committed")
                return
        finished = FinishedJob(self._job, outcome.content_sha256, transcript)
        (review,) = retry_storage(partial(doubts_in, context.db, [finished]), context.outage_seconds)

        def commit() -> None:
            with context.db.begin() as tx:
                if self._recording is not None:
                    self._recording.keep(tx, self._claim)
                named = self._with_names(tx, outcome, transcript)
                finish_job(tx, self._claim, named, passages, review, statement)
                if edits := edits_of(tx, self._job.id) if self._record is not None else []:
                    index_words(tx, self._job.id, self._job.project, apply_edits(transcript, edits))
                self._write_voices(tx, outcome.reused_from)
                self._keep_sounds(tx, outcome.reused_from)
                attempt.drop_intermediate(tx)
                if last is not None:  # after the row was fenced, and last: others wait for the worker's row
                    save_chunk(tx, self._claim, *last, renewed=True)
                failpoint("finish.written")

        retry_storage(commit, context.outage_seconds)
        failpoint("finish.committed")

    def _write_voices(self, tx: Connection, reused_from: str | None) -> None:
        asked = self._job.options.diarization
        if self._speakers is not None:
            self._speakers.write_voices(tx)
        elif reused_from is not None and asked is not None and asked.voice_prints:
            copy_prints(tx, reused_from, self._job.id)

    def _keep_sounds(self, tx: Connection, reused_from: str | None) -> None:
        if self._witness is not None:
            self._witness.keep_sounds(tx)
        elif reused_from is not None and self._job.options.witness and self._record is None:
            copy_sounds(tx, reused_from, self._job.id, self._job.project)

    def _with_names(self, tx: Connection, outcome: Outcome, transcript: Transcript) -> Outcome:
        """The names that people gave by now, carried over to the speakers of the new transcript."""
        if self._record is None or outcome.speakers is None:
            return outcome
        names = carry_names(get_job(tx, self._job.id).speaker_names, self._record, transcript)
        named = [JobSpeaker(**{**each, "name": names.get(each["label"])}) for each in outcome.speakers]
        return replace(outcome, speakers=named)

    def _is_ours(self, key: str) -> bool:
        def read() -> bool:
            with self._context.db.read() as tx:
                job = get_job(tx, self._job.id)
            return job.state is JobState.DONE and job.transcript_key == key

        return retry_storage(read, self._context.outage_seconds)
