"""The blocking client: sends, sleeps and streams, with every call as a method.

`jobs`, `batches` and the others define the calls, `exchange` when a request is repeated.
"""

import time
from collections.abc import Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx

from spool.client import batches as of_batches
from spool.client import edits as of_edits
from spool.client import glossaries as of_glossaries
from spool.client import jobs as of_jobs
from spool.client import outputs as of_outputs
from spool.client import reports as of_reports
from spool.client import review as of_review
from spool.client import search as of_search
from spool.client import sources as of_sources
from spool.client import versions as of_versions
from spool.client import webhooks as of_webhooks
from spool.client.base import Session, answer, as_method
from spool.client.errors import Unreachable
from spool.client.exchange import Ask, Blocks, Flow, Lines, Pages, Pause, Retries, with_retries
from spool.client.sending.parts import Parts

P = ParamSpec("P")
T = TypeVar("T")


def _as_call(call: Callable[P, Flow[T]]) -> Callable[Concatenate["Spool", P], T]:
    @wraps(call)
    def method(self: "Spool", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(call(*args, **kwargs))

    return as_method(method)


def _as_items(call: Callable[P, Pages[T]]) -> Callable[Concatenate["Spool", P], Iterator[T]]:
    @wraps(call)
    def method(self: "Spool", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._pages(call(*args, **kwargs))

    return as_method(method)


def _as_lines(call: Callable[P, Lines[T]]) -> Callable[Concatenate["Spool", P], Iterator[T]]:
    @wraps(call)
    def method(self: "Spool", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._lines(call(*args, **kwargs))

    return as_method(method)


def _as_blocks(
    call: Callable[P, Blocks],
) -> Callable[Concatenate["Spool", P], Iterator[bytes]]:
    @wraps(call)
    def method(self: "Spool", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[bytes]:
        return self._blocks(call(*args, **kwargs))

    return as_method(method)


class Spool(Session):
    """A client that blocks. Use it as a context manager, or close it; one thread at a time."""

    submit = _as_call(of_jobs.submit)
    job = _as_call(of_jobs.job)
    jobs = _as_items(of_jobs.jobs)
    job_page = _as_call(of_jobs.job_page)
    wait = _as_call(of_jobs.wait)
    transcript = _as_call(of_jobs.transcript)
    transcript_file = _as_call(of_jobs.transcript_file)
    words = _as_call(of_jobs.words)
    search = _as_items(of_search.search)
    search_page = _as_call(of_search.search_page)
    rerun = _as_call(of_versions.rerun)
    versions = _as_call(of_versions.versions)
    diff = _as_call(of_versions.diff)
    review = _as_items(of_review.review)
    review_page = _as_call(of_review.review_page)
    review_recordings = _as_items(of_review.review_recordings)
    review_recordings_page = _as_call(of_review.review_recordings_page)
    check_passage = _as_call(of_review.check_passage)
    sample_size = _as_call(of_review.sample_size)
    draw_sample = _as_call(of_review.draw_sample)
    sample = _as_call(of_review.sample)
    samples = _as_items(of_review.samples)
    samples_page = _as_call(of_review.samples_page)
    batch_diff_page = _as_call(of_versions.batch_diff_page)
    edits = _as_call(of_edits.edits)
    edit = _as_call(of_edits.edit)
    undo_edit = _as_call(of_edits.undo_edit)
    cancel = _as_call(of_jobs.cancel)
    retry = _as_call(of_jobs.retry)
    diarize = _as_call(of_jobs.diarize)
    name_speakers = _as_call(of_jobs.name_speakers)
    speakers = _as_call(of_jobs.speakers)
    voices = _as_call(of_jobs.voices)
    forget_voice = _as_call(of_jobs.forget_voice)
    delete_content = _as_call(of_jobs.delete_content)
    submit_batch = _as_call(of_batches.submit_batch)
    batch = _as_call(of_batches.batch)
    wait_batch = _as_call(of_batches.wait_batch)
    results = _as_lines(of_batches.results)
    result_lines = _as_lines(of_batches.result_lines)
    batch_transcripts = _as_blocks(of_batches.transcripts)
    retry_failed = _as_call(of_batches.retry_failed)
    cancel_batch = _as_call(of_batches.cancel_batch)
    batches = _as_items(of_batches.batches)
    batch_page = _as_call(of_batches.batch_page)
    costs = _as_call(of_reports.costs)
    workers = _as_call(of_reports.workers)
    models = _as_call(of_reports.models)
    set_default_model = _as_call(of_reports.set_default_model)
    readiness = _as_call(of_reports.readiness)
    add_connection = _as_call(of_outputs.add_connection)
    connections = _as_call(of_outputs.connections)
    remove_connection = _as_call(of_outputs.remove_connection)
    export_again = _as_call(of_outputs.export_again)
    put_glossary = _as_call(of_glossaries.put_glossary)
    glossaries = _as_call(of_glossaries.glossaries)
    glossary = _as_call(of_glossaries.glossary)
    glossary_suggestions = _as_call(of_glossaries.glossary_suggestions)
    remove_glossary = _as_call(of_glossaries.remove_glossary)
    put_language_model = _as_call(of_glossaries.put_language_model)
    language_models = _as_call(of_glossaries.language_models)
    language_model = _as_call(of_glossaries.language_model)
    remove_language_model = _as_call(of_glossaries.remove_language_model)
    watch = _as_call(of_sources.watch)
    sources = _as_call(of_sources.sources)
    source = _as_call(of_sources.source)
    change_source = _as_call(of_sources.change_source)
    pause_source = _as_call(of_sources.pause_source)
    resume_source = _as_call(of_sources.resume_source)
    check_source = _as_call(of_sources.check_source)
    remove_source = _as_call(of_sources.remove_source)
    source_item_page = _as_call(of_sources.source_item_page)
    source_items = _as_items(of_sources.source_items)
    add_webhook = _as_call(of_webhooks.add_webhook)
    webhooks = _as_call(of_webhooks.webhooks)
    remove_webhook = _as_call(of_webhooks.remove_webhook)
    rotate_webhook = _as_call(of_webhooks.rotate_webhook)
    enable_webhook = _as_call(of_webhooks.enable_webhook)
    test_webhook = _as_call(of_webhooks.test_webhook)
    deliveries = _as_items(of_webhooks.deliveries)
    delivery_page = _as_call(of_webhooks.delivery_page)
    replay_delivery = _as_call(of_webhooks.replay_delivery)

    def __init__(
        self, url: str | None = None, key: str | None = None, *, retries: Retries | None = None
    ) -> None:
        super().__init__(url, key, retries=retries)
        self._http = httpx.Client(base_url=self.url, headers=self._headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _run(self, flow: Flow[T]) -> T:
        driven = with_retries(flow, self._contact)
        try:
            step = next(driven)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = driven.send(None)
                    continue
                if isinstance(step, Parts):
                    step.send()
                    step = driven.send(None)
                    continue
                try:
                    response = self._send(step)
                except httpx.TransportError as error:
                    step = driven.throw(Unreachable(self.url, error))
                else:
                    step = driven.send(response)
        except StopIteration as end:
            result: T = end.value
            return result

    def _send(self, ask: Ask) -> httpx.Response:
        with ask.parts() as parts:
            response = self._http.send(
                self._http.build_request(ask.method, ask.path, **parts), stream=ask.stream
            )
        if ask.stream and not response.is_success:
            response.read()
        return response

    def _pages(self, pages: Pages[T]) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self._run(pages.fetch(cursor))
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def _lines(self, lines: Lines[T]) -> Iterator[T]:
        response = self._run(answer(lines.ask))
        try:
            for line in response.iter_lines():
                yield lines.read(line)
        except httpx.TransportError as error:
            raise Unreachable(self.url, error) from error
        finally:
            response.close()

    def _blocks(self, blocks: Blocks) -> Iterator[bytes]:
        response = self._run(answer(blocks.ask))
        try:
            yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise Unreachable(self.url, error) from error
        finally:
            response.close()
