"""Every route on one screen: its method, path, handler, required scope and documentation.

A route that is missing from this table refuses every request; a test compares the table with the application.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from fastapi import APIRouter, Depends, FastAPI

from api.auth.authentication import authenticate
from api.openapi import batches as batch_docs
from api.openapi import jobs as docs
from api.openapi import page as page_docs
from api.openapi import webhooks as webhook_docs
from api.routes import (
    batches,
    costs,
    events,
    fleet,
    health,
    jobs,
    listen,
    metrics,
    openai,
    uploads,
    webhooks,
)
from api.routes.archive import (
    audio,
    edits,
    glossaries,
    language_models,
    outputs,
    review,
    samples,
    search,
    sources,
    speakers,
    transcripts,
    versions,
)
from api.routes.page import add_page
from spool.domain.api_keys import Scope


class Route(NamedTuple):
    """One route below `/v1`; `scope` None admits any key."""

    method: str
    path: str
    handler: Callable[..., Any]
    scope: Scope | None
    docs: dict[str, Any]

    @property
    def tag(self) -> str:
        """Its heading in the OpenAPI description."""
        noun = self.path.split("/")[1]
        return {"audio": "jobs", "overview": "fleet", "workers": "fleet", "models": "fleet"}.get(noun, noun)


READ, SUBMIT, ADMIN = Scope.READ, Scope.SUBMIT, Scope.ADMIN
_JOB, _BATCH, _WEBHOOK = "/jobs/{job_id}", "/batches/{batch_id}", "/webhooks/{webhook_id}"
_UPLOAD = "/uploads/{upload_id}"
_SOURCE, _LM = "/sources/{source_id}", "/language-models/{language_model}"

ROUTES = (
    Route("POST", "/jobs", jobs.create, SUBMIT, docs.CREATE),
    Route("GET", "/jobs", jobs.list_jobs, READ, docs.LIST),
    Route("GET", _JOB, jobs.get_job, READ, docs.ONE),
    Route("DELETE", _JOB, jobs.cancel, SUBMIT, docs.CANCEL),
    Route("DELETE", f"{_JOB}/content", jobs.delete, SUBMIT, jobs.DELETE),
    Route("POST", f"{_JOB}/retry", jobs.retry, SUBMIT, docs.RETRY),
    Route("GET", f"{_JOB}/transcript", transcripts.get_transcript, READ, docs.TRANSCRIPT),
    Route("POST", f"{_JOB}/rerun", versions.rerun, SUBMIT, versions.RERUN),
    Route("GET", f"{_JOB}/versions", versions.list_versions, READ, versions.LIST),
    Route("GET", f"{_JOB}/diff", versions.diff, READ, versions.DIFF),
    Route("POST", f"{_JOB}/diarize", speakers.diarize, SUBMIT, speakers.DIARIZE),
    Route("GET", f"{_JOB}/speakers", speakers.list_speakers, READ, speakers.LIST),
    Route("PATCH", f"{_JOB}/speakers", speakers.name, SUBMIT, speakers.NAME),
    Route("GET", f"{_JOB}/phrases", jobs.get_phrases, READ, jobs.PHRASES),
    Route("GET", f"{_JOB}/events", events.follow_job, READ, webhook_docs.OF_JOB),
    Route("POST", f"{_JOB}/audio-link", audio.create_link, READ, page_docs.AUDIO_LINK),
    Route("GET", f"{_JOB}/edits", edits.list_edits, READ, edits.LIST),
    Route("POST", f"{_JOB}/edits", edits.add, SUBMIT, edits.ADD),
    Route("POST", f"{_JOB}/edits/{{revision}}/undo", edits.undo, SUBMIT, edits.UNDO),
    Route("POST", f"{_JOB}/exports", outputs.export, SUBMIT, outputs.EXPORT),
    Route("GET", "/voices", speakers.list_voices, READ, speakers.VOICES),
    Route("DELETE", "/voices/{voice_id}", speakers.forget_voice, SUBMIT, speakers.FORGET),
    Route("POST", f"{_JOB}/passages/{{passage}}/check", review.check, SUBMIT, review.CHECK),
    Route("GET", "/review", review.list_passages, READ, review.LIST),
    Route("GET", "/review/recordings", review.list_recordings, READ, review.RECORDINGS),
    Route("GET", "/review/size", samples.get_size, READ, samples.SIZE),
    Route("POST", "/review/samples", samples.draw, SUBMIT, samples.DRAW),
    Route("GET", "/review/samples", samples.list_samples, READ, samples.LIST),
    Route("GET", "/review/samples/{sample_id}", samples.get_sample, READ, samples.ONE),
    Route("GET", "/search", search.search, READ, search.SEARCH),
    Route("GET", "/overview", fleet.get_overview, READ, page_docs.OVERVIEW),
    # The scope submit is enough here, though the answer is a transcript.
    Route("POST", "/audio/transcriptions", openai.transcribe, SUBMIT, page_docs.TRANSCRIBE),
    Route("POST", "/audio/translations", openai.translate, SUBMIT, page_docs.TRANSLATE),
    # Reading requires the scope submit too: anyone who knows a part's URL can upload it.
    Route("POST", "/uploads", uploads.create, SUBMIT, uploads.CREATE),
    Route("GET", _UPLOAD, uploads.get_upload, SUBMIT, uploads.ONE),
    Route("GET", f"{_UPLOAD}/parts", uploads.list_parts, SUBMIT, uploads.PARTS),
    Route("POST", f"{_UPLOAD}/complete", uploads.complete, SUBMIT, uploads.COMPLETE),
    Route("DELETE", _UPLOAD, uploads.drop, SUBMIT, uploads.DROP),
    Route("POST", "/batches", batches.create, SUBMIT, batch_docs.CREATE),
    Route("GET", "/batches", batches.list_batches, READ, batch_docs.LIST),
    Route("GET", _BATCH, batches.get_batch, READ, batch_docs.ONE),
    Route("DELETE", _BATCH, batches.cancel, SUBMIT, batch_docs.CANCEL),
    Route("GET", f"{_BATCH}/results", batches.get_results, READ, batch_docs.RESULTS),
    Route("GET", f"{_BATCH}/transcripts", batches.get_transcripts, READ, batch_docs.TRANSCRIPTS),
    Route("GET", f"{_BATCH}/diff", versions.diff_batch, READ, versions.BATCH_DIFF),
    Route("POST", f"{_BATCH}/retry-failed", batches.retry_failed, SUBMIT, batch_docs.RETRY),
    Route("GET", f"{_BATCH}/events", events.follow_batch, READ, webhook_docs.OF_BATCH),
    # Reading requires the scope submit too: a webhook's URL may contain a secret of its receiver.
    Route("POST", "/webhooks", webhooks.create, SUBMIT, webhook_docs.CREATE),
    Route("GET", "/webhooks", webhooks.list_webhooks, SUBMIT, webhook_docs.LIST),
    Route("GET", _WEBHOOK, webhooks.get_webhook, SUBMIT, webhook_docs.ONE),
    Route("DELETE", _WEBHOOK, webhooks.remove, SUBMIT, webhook_docs.REMOVE),
    Route("POST", f"{_WEBHOOK}/rotate", webhooks.rotate, SUBMIT, webhook_docs.ROTATE),
    Route("POST", f"{_WEBHOOK}/enable", webhooks.enable, SUBMIT, webhook_docs.ENABLE),
    Route("POST", f"{_WEBHOOK}/test", webhooks.test, SUBMIT, webhook_docs.TEST),
    Route("GET", f"{_WEBHOOK}/deliveries", webhooks.list_deliveries, SUBMIT, webhook_docs.DELIVERIES),
    Route(
        "POST", f"{_WEBHOOK}/deliveries/{{delivery_id}}/replay", webhooks.replay, SUBMIT, webhook_docs.REPLAY
    ),
    # Restricted to ADMIN, since the server connects to whatever endpoint a connection names.
    Route("POST", "/connections", outputs.create, ADMIN, outputs.CREATE),
    Route("GET", "/connections", outputs.list_connections, SUBMIT, outputs.LIST),
    Route("DELETE", "/connections/{name}", outputs.remove, ADMIN, outputs.REMOVE),
    Route("POST", "/glossaries", glossaries.put, SUBMIT, glossaries.PUT),
    Route("GET", "/glossaries", glossaries.list_glossaries, READ, glossaries.LIST),
    Route("GET", "/glossary-suggestions", glossaries.suggest, READ, glossaries.SUGGEST),
    Route("GET", "/glossaries/{glossary}", glossaries.get_glossary, READ, glossaries.ONE),
    Route("DELETE", "/glossaries/{glossary}", glossaries.remove, SUBMIT, glossaries.REMOVE),
    Route("POST", "/language-models", language_models.put, SUBMIT, language_models.PUT),
    Route("GET", "/language-models", language_models.list_language_models, READ, language_models.LIST),
    Route("GET", _LM, language_models.get_language_model, READ, language_models.ONE),
    Route(
        "DELETE", "/language-models/{language_model}", language_models.remove, SUBMIT, language_models.REMOVE
    ),
    Route("POST", "/sources", sources.create, SUBMIT, sources.CREATE),
    Route("GET", "/sources", sources.list_sources, READ, sources.LIST),
    Route("POST", "/sources/notifications", sources.notify, SUBMIT, sources.NOTIFY),
    Route("GET", _SOURCE, sources.get_source, READ, sources.ONE),
    Route("PATCH", _SOURCE, sources.change, SUBMIT, sources.CHANGE),
    Route("DELETE", _SOURCE, sources.remove, SUBMIT, sources.REMOVE),
    Route("GET", f"{_SOURCE}/items", sources.list_items, READ, sources.ITEMS),
    Route("POST", f"{_SOURCE}/pause", sources.pause, SUBMIT, sources.PAUSE),
    Route("POST", f"{_SOURCE}/resume", sources.resume, SUBMIT, sources.RESUME),
    Route("POST", f"{_SOURCE}/check", sources.check, SUBMIT, sources.CHECK),
    Route("GET", "/costs", costs.get_costs, READ, docs.COSTS),
    # Host names and busy times reveal other projects' work.
    Route("GET", "/workers", fleet.list_workers, ADMIN, docs.WORKERS),
    Route("GET", "/models", fleet.list_models, None, docs.MODELS),
    Route("GET", "/models/{model}", fleet.get_model, None, docs.MODEL),
    Route("PUT", "/models/default", fleet.set_default, ADMIN, docs.DEFAULT_MODEL),
)

OPEN = frozenset({"GET /healthz", "GET /readyz", "GET /", "GET /docs"})
"""Routes that need no key, like the files of the page and the description of the API."""

SCOPES: dict[str, Scope | None] = {f"{route.method} /v1{route.path}": route.scope for route in ROUTES} | {
    "GET /v1/jobs/{job_id}/audio": READ,
    "GET /metrics": ADMIN,
    "GET /v1/listen": SUBMIT,
    "GET /v1/listen/wenet": SUBMIT,
    "GET /v1/realtime": SUBMIT,
}
"""The scope that each other route requires."""


@cache  # the same for every app of a process
def _build_v1() -> APIRouter:
    v1 = APIRouter(prefix="/v1", dependencies=[Depends(authenticate)], responses=docs.EVERYWHERE)
    for route in ROUTES:
        v1.add_api_route(route.path, route.handler, methods=[route.method], tags=[route.tag], **route.docs)
    return v1


def add_routes(app: FastAPI) -> None:
    """Add every route, and the page, to `app`."""
    app.state.scopes = SCOPES
    app.include_router(_build_v1())
    # A player sends a signed link instead of a key.
    app.add_api_route(
        "/v1/jobs/{job_id}/audio",
        audio.get_audio,
        methods=["GET"],
        tags=["jobs"],
        dependencies=[Depends(audio.authenticate_listener)],
        **page_docs.AUDIO,
    )
    app.add_api_route(
        "/metrics",
        metrics.get_metrics,
        methods=["GET"],
        tags=["fleet"],
        dependencies=[Depends(authenticate)],
        **page_docs.METRICS,
    )
    app.add_api_route("/healthz", health.healthz, methods=["GET"], tags=["health"], **docs.HEALTHZ)
    app.add_api_route("/readyz", health.readyz, methods=["GET"], tags=["health"], **docs.READYZ)
    # WebSockets, which OpenAPI cannot describe: docs/live.md does.
    app.add_api_websocket_route("/v1/listen", listen.listen)
    app.add_api_websocket_route("/v1/listen/wenet", listen.listen_wenet)
    app.add_api_websocket_route("/v1/realtime", listen.realtime)
    add_page(app)
