"""The calls as methods of both clients: `Spool` returns what `AsyncSpool` returns a coroutine of.

This is the one list of what a client can do; a test compares it with the server's table of routes.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from types import MethodType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from spool.client import archive as _archive
from spool.client import batches as _batches
from spool.client import jobs as _jobs
from spool.client import reports as _reports
from spool.client import resources as _resources
from spool.client.exchange import Flow, Stream

P = ParamSpec("P")
T = TypeVar("T")


class Blocking(Protocol):
    """A client whose methods return what they fetched."""

    def _run(self, flow: Flow[T]) -> T:
        """Carry out a call."""

    def _iterate(self, stream: Stream[T]) -> Iterator[T]:
        """Fetch item after item."""


class Awaiting(Protocol):
    """A client whose methods are awaited."""

    def _run(self, flow: Flow[T]) -> Coroutine[Any, Any, T]:
        """Carry out a call."""

    def _iterate(self, stream: Stream[T]) -> AsyncIterator[T]:
        """Fetch item after item."""


class _Method:
    """A call whose parameters help() and editors show after `self`."""

    def __init__(self, call: Callable[..., Any], through: str) -> None:
        self._call, self._through = call, through

    def __get__(self, client: Any, owner: type) -> Callable[..., Any]:  # noqa: ANN401 - either client
        call, through = self._call, self._through

        @wraps(call)
        def method(client: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the call
            return getattr(client, through)(call(*args, **kwargs))

        signature = inspect.signature(call)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [own, *signature.parameters.values()]
        method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return method if client is None else MethodType(method, client)


class Call(_Method, Generic[P, T]):
    """A call with one result."""

    def __init__(self, call: Callable[P, Flow[T]]) -> None:
        super().__init__(call, "_run")

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """The method of this client."""
        return super().__get__(client, owner)


class Many(_Method, Generic[P, T]):
    """A call with many results, fetched as needed."""

    def __init__(self, call: Callable[P, Stream[T]]) -> None:
        super().__init__(call, "_iterate")

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """The method of this client."""
        return super().__get__(client, owner)


class Methods:
    """Every call to the server."""

    submit = Call(_jobs.submit)
    submit_once = Call(_jobs.submit_once)
    job = Call(_jobs.job)
    jobs = Many(_jobs.jobs)
    job_page = Call(_jobs.job_page)
    wait = Call(_jobs.wait)
    transcript = Call(_jobs.transcript)
    transcript_file = Call(_jobs.transcript_file)
    clip = Call(_jobs.clip)
    clip_transcript = Call(_jobs.clip_transcript)
    clip_audio = Call(_jobs.clip_audio)
    receipt = Call(_jobs.receipt)
    receipt_keys = Call(_jobs.receipt_keys)
    words = Call(_jobs.words)
    rerun = Call(_jobs.rerun)
    versions = Call(_jobs.versions)
    diff = Call(_jobs.diff)
    batch_diff_page = Call(_jobs.batch_diff_page)
    cancel = Call(_jobs.cancel)
    retry = Call(_jobs.retry)
    delete_content = Call(_jobs.delete_content)
    phrases = Call(_jobs.phrases)
    audio_link = Call(_jobs.audio_link)

    submit_batch = Call(_batches.submit_batch)
    batch = Call(_batches.batch)
    wait_batch = Call(_batches.wait_batch)
    results = Many(_batches.results)
    result_lines = Many(_batches.result_lines)
    batch_transcripts = Many(_batches.transcripts)
    retry_failed = Call(_batches.retry_failed)
    cancel_batch = Call(_batches.cancel_batch)
    batches = Many(_batches.batches)
    batch_page = Call(_batches.batch_page)

    search = Many(_archive.search)
    search_page = Call(_archive.search_page)
    review = Many(_archive.review)
    review_page = Call(_archive.review_page)
    review_recordings = Many(_archive.review_recordings)
    review_recordings_page = Call(_archive.review_recordings_page)
    check_passage = Call(_archive.check_passage)
    sample_size = Call(_archive.sample_size)
    draw_sample = Call(_archive.draw_sample)
    sample = Call(_archive.sample)
    samples = Many(_archive.samples)
    samples_page = Call(_archive.samples_page)
    edits = Call(_archive.edits)
    edit = Call(_archive.edit)
    undo_edit = Call(_archive.undo_edit)
    spread_places = Call(_archive.spread_places)
    spread_edit = Call(_archive.spread_edit)
    undo_spread = Call(_archive.undo_spread)
    close_to_readers = Call(_archive.close_to_readers)
    closures = Call(_archive.closures)
    lift_closure = Call(_archive.lift_closure)
    openings = Call(_archive.openings)
    closure_suggestions = Call(_archive.closure_suggestions)
    decide_not_private = Call(_archive.decide_not_private)
    diarize = Call(_archive.diarize)
    name_speakers = Call(_archive.name_speakers)
    speakers = Call(_archive.speakers)
    voices = Call(_archive.voices)
    forget_voice = Call(_archive.forget_voice)

    add_connection = Call(_resources.add_connection)
    connections = Call(_resources.connections)
    remove_connection = Call(_resources.remove_connection)
    export_again = Call(_resources.export_again)
    put_glossary = Call(_resources.put_glossary)
    glossaries = Call(_resources.glossaries)
    glossary = Call(_resources.glossary)
    glossary_suggestions = Call(_resources.glossary_suggestions)
    remove_glossary = Call(_resources.remove_glossary)
    put_language_model = Call(_resources.put_language_model)
    language_models = Call(_resources.language_models)
    language_model = Call(_resources.language_model)
    remove_language_model = Call(_resources.remove_language_model)
    watch = Call(_resources.watch)
    sources = Call(_resources.sources)
    source = Call(_resources.source)
    change_source = Call(_resources.change_source)
    pause_source = Call(_resources.pause_source)
    resume_source = Call(_resources.resume_source)
    check_source = Call(_resources.check_source)
    remove_source = Call(_resources.remove_source)
    source_item_page = Call(_resources.source_item_page)
    source_items = Many(_resources.source_items)
    add_webhook = Call(_resources.add_webhook)
    webhooks = Call(_resources.webhooks)
    remove_webhook = Call(_resources.remove_webhook)
    rotate_webhook = Call(_resources.rotate_webhook)
    enable_webhook = Call(_resources.enable_webhook)
    test_webhook = Call(_resources.test_webhook)
    deliveries = Many(_resources.deliveries)
    delivery_page = Call(_resources.delivery_page)
    replay_delivery = Call(_resources.replay_delivery)
    webhook = Call(_resources.webhook)

    costs = Call(_reports.costs)
    workers = Call(_reports.workers)
    models = Call(_reports.models)
    set_default_model = Call(_reports.set_default_model)
    readiness = Call(_reports.readiness)
    model = Call(_reports.model)
    overview = Call(_reports.overview)
