"""Before the WebSocket is accepted: parses the request, creates the session's job, and waits for a worker.

Invalid requests are refused with an HTTP status and a problem document, as by every other route.
"""

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any

from anyio import to_thread
from pydantic import ValidationError

from api.auth.principal import Principal
from api.live.limits import full
from api.live.protocol import SessionRequest
from api.problems import Problem, validation_problem
from api.services import Services
from api.submission.jobs import cancel_unless_ended, requirement_of, resolve_options
from spool import clock
from spool.broker.live_signals import WAITING
from spool.domain.fleet.routing import Route
from spool.domain.jobs import Job, JobState, Source
from spool.domain.live.options import Listening
from spool.domain.options import AskedOptions
from spool.domain.priority import PRIORITIES
from spool.ids import new_id
from spool.schemas.jobs import UploadRequest
from spool.store.jobs import NewJob, create_job, get_job
from spool.tracing import current

_FIRST_POLL_SECONDS, _POLL_SECONDS = 0.05, 0.4
_MOST_TAGS = 20
_MOST_TAG_LENGTH = 300
_WITHOUT_EFFECT = frozenset(
    {"punctuate", "smart_format", "version", "language", "no_delay", "utterance_end_ms", "filler_words"}
)
"""Parameters that Deepgram's clients send and that have no effect on any model here."""
_SEARCH = ("model", "decoder", "beam", "head")
_SWITCHES = ("interim_results", "vad_events", "acknowledge")
_CONTEXT = re.compile(r"(-?\d{1,5}),(\d{1,4})")
_TRUE, _FALSE = frozenset({"true", "1"}), frozenset({"false", "0"})


def read_query(
    services: Services, pairs: Iterable[tuple[str, str]]
) -> tuple[SessionRequest, dict[str, bool]]:
    """What a query asks for, and its switches (`_SWITCHES`). Raises `Problem` 422."""
    values, tags = read_values(pairs)
    if values.pop("encoding", "linear16") != "linear16":
        raise parameter_problem("encoding", "must be linear16: raw 16-bit PCM, little-endian")
    switches = take_switches(values)
    default = services.fleet.default()
    live = _take_live_options(values)
    if (then := values.pop("then", None)) is not None:
        live["then"] = _rerun_options(services, default, then)
    search: dict[str, Any] = {name: values.pop(name) for name in _SEARCH if name in values}
    if search.get("beam", "").isdecimal():
        search["beam"] = int(search["beam"])
    if "speech_detector" in values:
        search["speech_detector"] = _switch(values, "speech_detector")
    named = {name: values.pop(name, None) for name in ("name", "project", "pool")}
    if values:
        raise parameter_problem(next(iter(values)), "is not a parameter of a live session")
    try:
        listening = Listening.model_validate(live)
        body = UploadRequest.model_validate(
            {key: value for key, value in named.items() if value} | {"tags": tags}
        )
    except ValidationError as error:
        raise validation_problem(error.errors(include_url=False, include_input=False), "query") from None
    options = _options(services, default, search, "query").job_options()
    return SessionRequest(options=options.model_copy(update={"live": listening}), body=body), switches


def take_switches(values: dict[str, str]) -> dict[str, bool]:
    """The switches of a connection, taken out of `values`. Raises `Problem` 422."""
    return {name: _switch(values, name) for name in _SWITCHES}


def read_values(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], dict[str, str]]:
    """The parameters that have an effect, each once, and the tags."""
    values: dict[str, str] = {}
    tags: dict[str, str] = {}
    for name, value in pairs:
        if name == "tag":
            key, equals, rest = value.partition("=")
            if not equals or not key or len(tags) >= _MOST_TAGS or len(value) > _MOST_TAG_LENGTH:
                raise parameter_problem("tag", "must have the form key=value")
            tags[key] = rest
        elif name in values:
            raise parameter_problem(name, "was given twice")
        elif name not in _WITHOUT_EFFECT:
            values[name] = value
    return values, tags


def _take_live_options(values: dict[str, str]) -> dict[str, Any]:
    """The options of audio and endpoints, taken out of `values`."""
    live: dict[str, Any] = {name: values.pop(name) for name in ("sample_rate", "channels") if name in values}
    if (endpointing := values.pop("endpointing", None)) is not None:
        live["silence_ms"] = None if endpointing.lower() in _FALSE else endpointing
    if (resume := values.pop("resume", None)) is not None:
        live["resume_seconds"] = resume
    if (context := values.pop("att_context", None)) is not None:
        match = _CONTEXT.fullmatch(context)
        if match is None:
            raise parameter_problem("att_context", "must have the form LEFT,RIGHT, such as 70,1")
        live["att_context"] = (int(match[1]), int(match[2]))
    return live


def _rerun_options(services: Services, default: str, text: str) -> dict[str, Any]:
    """The options of the job on the recording: a model's name, or an object with it and other options."""
    asked: dict[str, Any] = {"model": text}
    if text.lstrip().startswith("{"):
        try:
            asked = json.loads(text)
        except (ValueError, RecursionError):
            raise parameter_problem("then", "must be a model's name or a JSON object") from None
    options = _options(services, default, asked, "then")
    if options.boost is not None:
        raise parameter_problem("then", "does not support phrases; submit such a job after the session")
    document: dict[str, Any] = options.job_options().document()
    return document


def _options(services: Services, default: str, asked: dict[str, Any], where: str) -> AskedOptions:
    try:
        return resolve_options(services.settings, default, asked)
    except ValidationError as error:
        raise validation_problem(error.errors(include_url=False, include_input=False), where) from None


def _switch(values: dict[str, str], name: str) -> bool:
    value = values.pop(name, "false").lower()
    if value not in _TRUE | _FALSE:
        raise parameter_problem(name, "must be true or false")
    return value in _TRUE


def parameter_problem(name: str, message: str) -> Problem:
    """The problem of one query parameter."""
    return validation_problem([{"loc": (name,), "msg": message}], "query")


async def open_session(services: Services, caller: Principal, asked: SessionRequest) -> Job:
    """The job of a session that a worker has claimed. Raises `Problem` 503 if none claims it in time, and the
    errors of other submissions."""
    with services.live.seats.opening():
        return await _open(services, caller, asked)


async def _open(services: Services, caller: Principal, asked: SessionRequest) -> Job:
    job = await to_thread.run_sync(_create, services, caller, asked)
    pause = _FIRST_POLL_SECONDS
    deadline = clock.monotonic() + services.settings.live_open_seconds
    try:
        while clock.monotonic() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _POLL_SECONDS)
            now = await to_thread.run_sync(_look, services, job.id, limiter=services.live.threads)
            if now.state is not JobState.QUEUED:
                return now
    except BaseException:  # the client has disconnected
        await asyncio.shield(asyncio.ensure_future(to_thread.run_sync(cancel_unless_ended, services, job.id)))
        raise
    await to_thread.run_sync(cancel_unless_ended, services, job.id)
    model = asked.options.model
    services.live.seats.note_full(model)
    raise full(f"No worker has room for another live session of {model} now; try again in a moment.")


def _create(services: Services, caller: Principal, asked: SessionRequest) -> Job:
    settings, fleet, model = services.settings, services.fleet, asked.options.model
    project = caller.project_for(asked.body.project)
    requires = requirement_of(settings, model, None)
    route = Route(asked.body.pool, None, None if asked.body.pool else model, requires=requires)
    fleet.check(route, model, live=True)
    if (then := asked.listening.then) is not None:
        second = str(then["model"])
        fleet.check(Route(None, None, second), second)
    if (
        reason := fleet.recent().waiting_for(route, model) and fleet.read().waiting_for(route, model)
    ) is not None:
        raise full(f"No worker can take the session now: it needs {reason}.")
    job_id = new_id("job")
    name = asked.body.name or f"live-{clock.now():%Y-%m-%d-%H%M%S}"
    new = NewJob(
        id=job_id,
        source=Source("live", f"jobs/{job_id}/source"),
        options=asked.options,
        name=name if name.endswith(".wav") else f"{name}.wav",
        project=project,
        pool=asked.body.pool,
        requires=requires,
        tags=asked.body.tags or None,
        key_id=caller.key_id,
        priority=PRIORITIES["normal"],
        traceparent=current().header,
    )
    with services.database.begin() as tx:
        job, _ = create_job(tx, new)
    services.live.signals.tell(WAITING)
    return job


def _look(services: Services, job_id: str) -> Job:
    services.live.signals.tell(WAITING)
    with services.database.read() as tx:
        return get_job(tx, job_id)
