"""The HTTP face: every route on one screen, and what lives as long as the process.

Handlers stand in files named after their noun; the words of the OpenAPI page are in `described`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from api import (
    audio,
    batches,
    costs,
    deletions,
    described,
    described_batches,
    described_events,
    described_page,
    described_webhooks,
    events,
    health,
    jobs,
    metrics,
    overview,
    phrases,
    problems,
    transcriptions,
    transcripts,
    webhooks,
    workers,
)
from api.auth import let_in
from api.guard import Guard
from api.journal import Journal
from api.keyring import must_ask
from api.services import Services, open_services
from api.slowness import SlowBody
from api.web import add_page
from spool import __version__
from spool.settings import Settings


class _App(FastAPI):
    """FastAPI behind its guard, whose page also holds the form of its problems."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            page = super().openapi()
            described.add_problem_schema(page)
            if not must_ask(self.state.settings):
                described.let_anybody_in(page)
        return super().openapi()

    def build_middleware_stack(self) -> ASGIApp:
        # Outermost, so that an answer to what was not foreseen passes through it as well.
        inner = SlowBody(super().build_middleware_stack())
        return Journal(Guard(inner, self.state.settings.api_host, self._asks))

    def _asks(self) -> bool:
        services: Services | None = getattr(self.state, "services", None)
        return services is not None and services.keyring.asks


def create_app(settings: Settings) -> FastAPI:
    """The application for these settings. Opens nothing until it is started."""
    app = _App(
        title="Spool",
        version=__version__,
        description=described.DESCRIPTION,
        lifespan=_lifespan,
        openapi_url="/openapi.json",
        docs_url="/docs",
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.metrics = metrics.Metrics()
    problems.install(app)

    v1 = APIRouter(prefix="/v1", dependencies=[Depends(let_in)], responses=described.EVERYWHERE)
    v1.add_api_route("/jobs", jobs.create, methods=["POST"], tags=["jobs"], **described.CREATE)
    v1.add_api_route("/jobs", jobs.listed, methods=["GET"], tags=["jobs"], **described.LIST)
    v1.add_api_route("/jobs/{job_id}", jobs.one, methods=["GET"], tags=["jobs"], **described.ONE)
    v1.add_api_route("/jobs/{job_id}", jobs.cancel, methods=["DELETE"], tags=["jobs"], **described.CANCEL)
    v1.add_api_route(
        "/jobs/{job_id}/content", deletions.delete, methods=["DELETE"], tags=["jobs"], **deletions.DELETE
    )
    v1.add_api_route("/jobs/{job_id}/retry", jobs.retry, methods=["POST"], tags=["jobs"], **described.RETRY)
    v1.add_api_route(
        "/jobs/{job_id}/transcript",
        transcripts.transcript,
        methods=["GET"],
        tags=["jobs"],
        **described.TRANSCRIPT,
    )
    v1.add_api_route(
        "/jobs/{job_id}/phrases", phrases.phrases, methods=["GET"], tags=["jobs"], **phrases.PHRASES
    )
    _add_batches(v1)
    _add_events(v1)
    _add_webhooks(v1)
    _add_views(app, v1)
    v1.add_api_route("/costs", costs.costs, methods=["GET"], tags=["costs"], **described.COSTS)
    v1.add_api_route("/workers", workers.workers, methods=["GET"], tags=["fleet"], **described.WORKERS)
    v1.add_api_route("/models", workers.models, methods=["GET"], tags=["fleet"], **described.MODELS)
    app.include_router(v1)
    app.add_api_route("/healthz", health.healthz, methods=["GET"], tags=["health"], **described.HEALTHZ)
    app.add_api_route("/readyz", health.readyz, methods=["GET"], tags=["health"], **described.READYZ)
    return app


def _add_views(app: FastAPI, v1: APIRouter) -> None:
    told, one = described_page, "/jobs/{job_id}"
    v1.add_api_route("/overview", overview.overview, methods=["GET"], tags=["fleet"], **told.OVERVIEW)
    v1.add_api_route(f"{one}/audio-link", audio.link, methods=["POST"], tags=["jobs"], **told.AUDIO_LINK)
    # Not below `v1`, where a key is asked for: a player brings a link instead.
    v1.add_api_route(
        "/audio/transcriptions", transcriptions.transcribe, methods=["POST"], tags=["jobs"], **told.TRANSCRIBE
    )
    listens, asked = [Depends(audio.listener)], [Depends(let_in)]
    app.add_api_route(
        f"/v1{one}/audio", audio.audio, methods=["GET"], tags=["jobs"], dependencies=listens, **told.AUDIO
    )
    app.add_api_route(
        "/metrics", metrics.metrics, methods=["GET"], tags=["fleet"], dependencies=asked, **told.METRICS
    )
    add_page(app)


def _add_batches(v1: APIRouter) -> None:
    tags: list[str | Enum] = ["batches"]
    told, one = described_batches, "/batches/{batch_id}"
    v1.add_api_route("/batches", batches.create, methods=["POST"], tags=tags, **told.CREATE)
    v1.add_api_route("/batches", batches.listed, methods=["GET"], tags=tags, **told.LIST)
    v1.add_api_route(one, batches.one, methods=["GET"], tags=tags, **told.ONE)
    v1.add_api_route(one, batches.cancel, methods=["DELETE"], tags=tags, **told.CANCEL)
    v1.add_api_route(f"{one}/results", batches.results, methods=["GET"], tags=tags, **told.RESULTS)
    v1.add_api_route(f"{one}/retry-failed", batches.retry_failed, methods=["POST"], tags=tags, **told.RETRY)


def _add_events(v1: APIRouter) -> None:
    told = described_events
    v1.add_api_route("/jobs/{job_id}/events", events.of_job, methods=["GET"], tags=["jobs"], **told.OF_JOB)
    v1.add_api_route(
        "/batches/{batch_id}/events", events.of_batch, methods=["GET"], tags=["batches"], **told.OF_BATCH
    )


def _add_webhooks(v1: APIRouter) -> None:
    tags: list[str | Enum] = ["webhooks"]
    told, one = described_webhooks, "/webhooks/{webhook_id}"
    v1.add_api_route("/webhooks", webhooks.create, methods=["POST"], tags=tags, **told.CREATE)
    v1.add_api_route("/webhooks", webhooks.listed, methods=["GET"], tags=tags, **told.LIST)
    v1.add_api_route(one, webhooks.one, methods=["GET"], tags=tags, **told.ONE)
    v1.add_api_route(one, webhooks.remove, methods=["DELETE"], tags=tags, **told.REMOVE)
    v1.add_api_route(f"{one}/rotate", webhooks.rotate, methods=["POST"], tags=tags, **told.ROTATE)
    v1.add_api_route(f"{one}/enable", webhooks.enable, methods=["POST"], tags=tags, **told.ENABLE)
    v1.add_api_route(f"{one}/test", webhooks.test, methods=["POST"], tags=tags, **told.TEST)
    sent = f"{one}/deliveries"
    v1.add_api_route(sent, webhooks.deliveries, methods=["GET"], tags=tags, **told.DELIVERIES)
    again = f"{sent}/{{delivery_id}}/replay"
    v1.add_api_route(again, webhooks.replay, methods=["POST"], tags=tags, **told.REPLAY)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services = open_services(app.state.settings)
    app.state.services = services
    try:
        yield
    finally:
        await run_in_threadpool(services.close)
