"""The client for asyncio: sends, sleeps and streams, with every call as a method.

What a call asks for is in `jobs`, `batches` and the others, when it is asked again in `exchange`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

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
from spool.client.exchange import Ask, Blocks, Flow, Lines, Pages, Pause, Retries, insistent
from spool.client.sending.parts import Parts

P = ParamSpec("P")
T = TypeVar("T")


def _soon(call: Callable[P, Flow[T]]) -> Callable[Concatenate["AsyncSpool", P], Coroutine[Any, Any, T]]:
    @wraps(call)
    async def method(self: "AsyncSpool", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(call(*args, **kwargs))

    return as_method(method)


def _listed_soon(call: Callable[P, Pages[T]]) -> Callable[Concatenate["AsyncSpool", P], AsyncIterator[T]]:
    @wraps(call)
    def method(self: "AsyncSpool", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._pages(call(*args, **kwargs))

    return as_method(method)


def _streamed_soon(call: Callable[P, Lines[T]]) -> Callable[Concatenate["AsyncSpool", P], AsyncIterator[T]]:
    @wraps(call)
    def method(self: "AsyncSpool", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._lines(call(*args, **kwargs))

    return as_method(method)


def _downloaded_soon(
    call: Callable[P, Blocks],
) -> Callable[Concatenate["AsyncSpool", P], AsyncIterator[bytes]]:
    @wraps(call)
    def method(self: "AsyncSpool", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[bytes]:
        return self._blocks(call(*args, **kwargs))

    return as_method(method)


class AsyncSpool(Session):
    """A client for asyncio: the methods of `Spool`, awaited. Files are read in blocks between awaits."""

    submit = _soon(of_jobs.submit)
    job = _soon(of_jobs.job)
    jobs = _listed_soon(of_jobs.jobs)
    job_page = _soon(of_jobs.job_page)
    wait = _soon(of_jobs.wait)
    transcript = _soon(of_jobs.transcript)
    transcript_file = _soon(of_jobs.transcript_file)
    words = _soon(of_jobs.words)
    search = _listed_soon(of_search.search)
    search_page = _soon(of_search.search_page)
    rerun = _soon(of_versions.rerun)
    versions = _soon(of_versions.versions)
    diff = _soon(of_versions.diff)
    review = _listed_soon(of_review.review)
    review_page = _soon(of_review.review_page)
    review_recordings = _listed_soon(of_review.review_recordings)
    review_recordings_page = _soon(of_review.review_recordings_page)
    check_passage = _soon(of_review.check_passage)
    sample_size = _soon(of_review.sample_size)
    draw_sample = _soon(of_review.draw_sample)
    sample = _soon(of_review.sample)
    samples = _listed_soon(of_review.samples)
    samples_page = _soon(of_review.samples_page)
    batch_diff_page = _soon(of_versions.batch_diff_page)
    edits = _soon(of_edits.edits)
    edit = _soon(of_edits.edit)
    undo_edit = _soon(of_edits.undo_edit)
    cancel = _soon(of_jobs.cancel)
    retry = _soon(of_jobs.retry)
    diarize = _soon(of_jobs.diarize)
    name_speakers = _soon(of_jobs.name_speakers)
    speakers = _soon(of_jobs.speakers)
    voices = _soon(of_jobs.voices)
    forget_voice = _soon(of_jobs.forget_voice)
    delete_content = _soon(of_jobs.delete_content)
    submit_batch = _soon(of_batches.submit_batch)
    batch = _soon(of_batches.batch)
    wait_batch = _soon(of_batches.wait_batch)
    results = _streamed_soon(of_batches.results)
    result_lines = _streamed_soon(of_batches.result_lines)
    batch_transcripts = _downloaded_soon(of_batches.transcripts)
    retry_failed = _soon(of_batches.retry_failed)
    cancel_batch = _soon(of_batches.cancel_batch)
    batches = _listed_soon(of_batches.batches)
    batch_page = _soon(of_batches.batch_page)
    costs = _soon(of_reports.costs)
    workers = _soon(of_reports.workers)
    models = _soon(of_reports.models)
    set_default_model = _soon(of_reports.set_default_model)
    readiness = _soon(of_reports.readiness)
    add_connection = _soon(of_outputs.add_connection)
    connections = _soon(of_outputs.connections)
    remove_connection = _soon(of_outputs.remove_connection)
    export_again = _soon(of_outputs.export_again)
    put_glossary = _soon(of_glossaries.put_glossary)
    glossaries = _soon(of_glossaries.glossaries)
    glossary = _soon(of_glossaries.glossary)
    glossary_suggestions = _soon(of_glossaries.glossary_suggestions)
    remove_glossary = _soon(of_glossaries.remove_glossary)
    put_language_model = _soon(of_glossaries.put_language_model)
    language_models = _soon(of_glossaries.language_models)
    language_model = _soon(of_glossaries.language_model)
    remove_language_model = _soon(of_glossaries.remove_language_model)
    watch = _soon(of_sources.watch)
    sources = _soon(of_sources.sources)
    source = _soon(of_sources.source)
    change_source = _soon(of_sources.change_source)
    pause_source = _soon(of_sources.pause_source)
    resume_source = _soon(of_sources.resume_source)
    check_source = _soon(of_sources.check_source)
    remove_source = _soon(of_sources.remove_source)
    source_item_page = _soon(of_sources.source_item_page)
    source_items = _listed_soon(of_sources.source_items)
    add_webhook = _soon(of_webhooks.add_webhook)
    webhooks = _soon(of_webhooks.webhooks)
    remove_webhook = _soon(of_webhooks.remove_webhook)
    rotate_webhook = _soon(of_webhooks.rotate_webhook)
    enable_webhook = _soon(of_webhooks.enable_webhook)
    test_webhook = _soon(of_webhooks.test_webhook)
    deliveries = _listed_soon(of_webhooks.deliveries)
    delivery_page = _soon(of_webhooks.delivery_page)
    replay_delivery = _soon(of_webhooks.replay_delivery)

    def __init__(
        self, url: str | None = None, key: str | None = None, *, retries: Retries | None = None
    ) -> None:
        super().__init__(url, key, retries=retries)
        self._http = httpx.AsyncClient(base_url=self.url, headers=self._headers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the connections go."""
        await self._http.aclose()

    async def _run(self, flow: Flow[T]) -> T:
        driven = insistent(flow, self._contact)
        try:
            step = next(driven)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = driven.send(None)
                    continue
                if isinstance(step, Parts):
                    await step.send_soon()
                    step = driven.send(None)
                    continue
                try:
                    response = await self._send(step)
                except httpx.TransportError as error:
                    step = driven.throw(Unreachable(self.url, error))
                else:
                    step = driven.send(response)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _send(self, ask: Ask) -> httpx.Response:
        with ask.parts() as parts:
            request = self._http.build_request(ask.method, ask.path, **parts)
            response = await self._http.send(request, stream=ask.stream)
        if ask.stream and not response.is_success:
            await response.aread()
        return response

    async def _pages(self, pages: Pages[T]) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            page = await self._run(pages.fetch(cursor))
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _lines(self, lines: Lines[T]) -> AsyncIterator[T]:
        response = await self._run(answer(lines.ask))
        try:
            async for line in response.aiter_lines():
                yield lines.read(line)
        except httpx.TransportError as error:
            raise Unreachable(self.url, error) from error
        finally:
            await response.aclose()

    async def _blocks(self, blocks: Blocks) -> AsyncIterator[bytes]:
        response = await self._run(answer(blocks.ask))
        try:
            async for block in response.aiter_bytes():
                yield block
        except httpx.TransportError as error:
            raise Unreachable(self.url, error) from error
        finally:
            await response.aclose()
