"""Every route on one screen: its method, path, handler, required scope, and how else it may answer.

A route that is missing from this table refuses every request; a test compares the table with the application.
"""

from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from starlette.routing import BaseRoute

from api.auth.authentication import authenticate
from api.delivery.batch_results import NDJSON
from api.openapi.document import BINARY, EVENT_SCHEMA, EVENT_STREAM, FORM, REPEATED, TEXT, Route, describe
from api.routes import (
    audio,
    batches,
    clips,
    closures,
    costs,
    edits,
    events,
    fleet,
    glossaries,
    health,
    jobs,
    language_models,
    listen,
    metrics,
    openai,
    outputs,
    receipts,
    review,
    search,
    sources,
    speakers,
    transcripts,
    uploads,
    versions,
    webhooks,
)
from api.routes.page import add_page
from spool.domain.api_keys import Scope

READ, SUBMIT, ADMIN, CLOSED = Scope.READ, Scope.SUBMIT, Scope.ADMIN, Scope.CLOSED
_JOB, _BATCH, _WEBHOOK = "/jobs/{job_id}", "/batches/{batch_id}", "/webhooks/{webhook_id}"
_UPLOAD, _SOURCE = "/uploads/{upload_id}", "/sources/{source_id}"
_GLOSSARY, _LM = "/glossaries/{glossary}", "/language-models/{language_model}"
_NEW_JOB = "source_forbidden conflict unsupported_media_type unknown_model disk_full"
_AS_OPENAI = "conflict unsupported_media_type unknown_model no_worker too_long disk_full"
_EVENTS: dict[str, Any] = {
    "also": {204: "The job or batch has ended, and there are no later events."},
    "media": {EVENT_STREAM: EVENT_SCHEMA},
}
_OPENAI: dict[str, Any] = {"media": openai.MEDIA, "body": {FORM: openai.FORM}}

ROUTES = (
    Route(
        "POST",
        "/jobs",
        jobs.create,
        SUBMIT,
        f"{_NEW_JOB} not_found",
        202,
        REPEATED,
        body=jobs.BODY,
        header="Location",
    ),
    Route("GET", "/jobs", jobs.list_jobs, READ),
    Route("GET", _JOB, jobs.get_job, READ, "not_found"),
    Route("DELETE", _JOB, jobs.cancel, SUBMIT, "not_found conflict"),
    Route("DELETE", f"{_JOB}/content", jobs.delete, SUBMIT, "not_found not_ended", also=jobs.LATER),
    Route("POST", f"{_JOB}/retry", jobs.retry, SUBMIT, "not_found conflict deleted", 202, REPEATED),
    Route(
        "GET",
        f"{_JOB}/transcript",
        transcripts.get_transcript,
        READ,
        "not_found not_done deleted",
        media=transcripts.MEDIA,
    ),
    Route("GET", f"{_JOB}/clip", clips.get_clip, READ, "not_found not_done deleted"),
    Route(
        "GET",
        f"{_JOB}/clip/transcript",
        clips.get_clip_transcript,
        READ,
        "not_found not_done deleted",
        media=clips.TRANSCRIPT_MEDIA,
    ),
    Route(
        "GET",
        f"{_JOB}/clip/audio",
        clips.get_clip_audio,
        READ,
        "not_found not_here deleted cannot_cut no_such_range",
        also={206: "The part of it that `Range` asks for."},
        media=clips.AUDIO_MEDIA,
    ),
    Route("GET", f"{_JOB}/receipt", receipts.get_receipt, READ, "not_found not_done deleted"),
    Route("GET", "/receipt-keys", receipts.list_keys, None),
    Route(
        "POST",
        f"{_JOB}/rerun",
        versions.rerun,
        SUBMIT,
        "source_forbidden not_found conflict deleted unknown_model",
        202,
        REPEATED,
        header="Location",
    ),
    Route("GET", f"{_JOB}/versions", versions.list_versions, READ, "not_found"),
    Route("GET", f"{_JOB}/diff", versions.diff, READ, "not_found conflict not_done deleted"),
    Route("POST", f"{_JOB}/diarize", speakers.diarize, SUBMIT, "not_found conflict deleted", 202, REPEATED),
    Route("GET", f"{_JOB}/speakers", speakers.list_speakers, READ, "not_found deleted"),
    Route("PATCH", f"{_JOB}/speakers", speakers.name, SUBMIT, "not_found conflict deleted"),
    Route("GET", f"{_JOB}/phrases", jobs.get_phrases, READ, "not_found deleted"),
    Route("GET", f"{_JOB}/events", events.follow_job, READ, "not_found too_many_streams", **_EVENTS),
    Route("POST", f"{_JOB}/audio-link", audio.create_link, READ, "not_found not_here deleted"),
    Route("GET", f"{_JOB}/edits", edits.list_edits, READ, "not_found deleted"),
    Route("POST", f"{_JOB}/edits", edits.add, SUBMIT, "not_found conflict edited deleted", 201),
    Route(
        "POST",
        f"{_JOB}/edits/{{revision}}/undo",
        edits.undo,
        SUBMIT,
        "not_found conflict edited deleted",
        201,
    ),
    Route("GET", f"{_JOB}/edits/{{revision}}/places", edits.list_places, READ, "not_found conflict deleted"),
    Route(
        "POST", f"{_JOB}/edits/{{revision}}/spread", edits.spread_edit, SUBMIT, "not_found conflict deleted"
    ),
    Route(
        "POST",
        f"{_JOB}/edits/{{revision}}/spread/undo",
        edits.undo_spread,
        SUBMIT,
        "not_found conflict deleted",
    ),
    Route("GET", f"{_JOB}/closures", closures.list_closures, READ, "not_found"),
    Route("POST", f"{_JOB}/closures", closures.close, SUBMIT, "not_found deleted", 201),
    Route("DELETE", f"{_JOB}/closures/{{closure_id}}", closures.lift, CLOSED, "not_found"),
    Route("GET", f"{_JOB}/openings", closures.list_openings, CLOSED, "not_found"),
    Route("GET", f"{_JOB}/closure-suggestions", closures.suggest, READ, "not_found not_done deleted"),
    Route("POST", f"{_JOB}/closure-suggestions", closures.decide, SUBMIT, "not_found not_done deleted"),
    Route("POST", f"{_JOB}/exports", outputs.export, SUBMIT, "not_found conflict deleted", 202),
    Route("GET", "/voices", speakers.list_voices, READ),
    Route("DELETE", "/voices/{voice_id}", speakers.forget_voice, SUBMIT, "not_found", 204),
    Route("POST", f"{_JOB}/passages/{{passage}}/check", review.check, SUBMIT, "not_found deleted"),
    Route("GET", "/review", review.list_passages, READ),
    Route("GET", "/review/recordings", review.list_recordings, READ),
    Route("GET", "/review/size", review.get_size, READ, "not_found"),
    Route("POST", "/review/samples", review.draw, SUBMIT, "not_found conflict", 201),
    Route("GET", "/review/samples", review.list_samples, READ),
    Route("GET", "/review/samples/{sample_id}", review.get_sample, READ, "not_found"),
    Route("GET", "/search", search.search, READ),
    Route("GET", "/overview", fleet.get_overview, READ),
    # The scope submit is enough here, though the answer is a transcript.
    Route("POST", "/audio/transcriptions", openai.transcribe, SUBMIT, _AS_OPENAI, **_OPENAI),
    Route("POST", "/audio/translations", openai.translate, SUBMIT, _AS_OPENAI, **_OPENAI),
    # Reading requires the scope submit too: anyone who knows a part's URL can upload it.
    Route(
        "POST",
        "/uploads",
        uploads.create,
        SUBMIT,
        "conflict not_offered",
        201,
        {200: "The unused upload of the same file."},
        header="Location",
    ),
    Route("GET", _UPLOAD, uploads.get_upload, SUBMIT, "not_found"),
    Route("GET", f"{_UPLOAD}/parts", uploads.list_parts, SUBMIT, "not_found conflict not_offered"),
    Route(
        "POST",
        f"{_UPLOAD}/complete",
        uploads.complete,
        SUBMIT,
        "not_found conflict not_offered parts_missing",
    ),
    Route("DELETE", _UPLOAD, uploads.drop, SUBMIT, "not_found conflict", 204),
    Route(
        "POST",
        "/batches",
        batches.create,
        SUBMIT,
        f"{_NEW_JOB} bad_lines source_missing",
        202,
        REPEATED,
        body=batches.BODY,
        header="Location",
    ),
    Route("GET", "/batches", batches.list_batches, READ),
    Route("GET", _BATCH, batches.get_batch, READ, "not_found"),
    Route("DELETE", _BATCH, batches.cancel, SUBMIT, "not_found conflict"),
    Route("GET", f"{_BATCH}/results", batches.get_results, READ, "not_found", media={NDJSON: TEXT}),
    Route(
        "GET",
        f"{_BATCH}/transcripts",
        batches.get_transcripts,
        READ,
        "not_found",
        media={"application/zip": BINARY},
    ),
    Route("GET", f"{_BATCH}/diff", versions.diff_batch, READ, "not_found deleted"),
    Route("POST", f"{_BATCH}/retry-failed", batches.retry_failed, SUBMIT, "not_found conflict", 202),
    Route("GET", f"{_BATCH}/events", events.follow_batch, READ, "not_found too_many_streams", **_EVENTS),
    # Reading requires the scope submit too: a webhook's URL may contain a secret of its receiver.
    Route(
        "POST",
        "/webhooks",
        webhooks.create,
        SUBMIT,
        "not_found conflict unsupported_media_type",
        201,
        header="Location",
    ),
    Route("GET", "/webhooks", webhooks.list_webhooks, SUBMIT),
    Route("GET", _WEBHOOK, webhooks.get_webhook, SUBMIT, "not_found"),
    Route("DELETE", _WEBHOOK, webhooks.remove, SUBMIT, "not_found", 204),
    Route("POST", f"{_WEBHOOK}/rotate", webhooks.rotate, SUBMIT, "not_found"),
    Route("POST", f"{_WEBHOOK}/enable", webhooks.enable, SUBMIT, "not_found"),
    Route("POST", f"{_WEBHOOK}/test", webhooks.test, SUBMIT, "not_found conflict", 202),
    Route("GET", f"{_WEBHOOK}/deliveries", webhooks.list_deliveries, SUBMIT, "not_found"),
    Route(
        "POST",
        f"{_WEBHOOK}/deliveries/{{delivery_id}}/replay",
        webhooks.replay,
        SUBMIT,
        "not_found conflict",
        202,
    ),
    # Restricted to ADMIN, since the server connects to whatever endpoint a connection names.
    Route("POST", "/connections", outputs.create, ADMIN, "conflict", 201),
    Route("GET", "/connections", outputs.list_connections, SUBMIT),
    Route("DELETE", "/connections/{name}", outputs.remove, ADMIN, "not_found", 204),
    Route("POST", "/glossaries", glossaries.put, SUBMIT, "conflict", 201),
    Route("GET", "/glossaries", glossaries.list_glossaries, READ),
    Route("GET", "/glossary-suggestions", glossaries.suggest, READ, "not_found"),
    Route("GET", _GLOSSARY, glossaries.get_glossary, READ, "not_found"),
    Route("DELETE", _GLOSSARY, glossaries.remove, SUBMIT, "not_found", 204),
    Route(
        "POST", "/language-models", language_models.put, SUBMIT, "conflict", 201, body=language_models.BODY
    ),
    Route("GET", "/language-models", language_models.list_language_models, READ),
    Route("GET", _LM, language_models.get_language_model, READ, "not_found"),
    Route("DELETE", _LM, language_models.remove, SUBMIT, "not_found conflict", 204),
    Route(
        "POST",
        "/sources",
        sources.create,
        SUBMIT,
        "source_forbidden conflict source_missing unknown_model",
        201,
        header="Location",
    ),
    Route("GET", "/sources", sources.list_sources, READ),
    Route("POST", "/sources/notifications", sources.notify, SUBMIT, status=202),
    Route("GET", _SOURCE, sources.get_source, READ, "not_found"),
    Route("PATCH", _SOURCE, sources.change, SUBMIT, "not_found unknown_model"),
    Route("DELETE", _SOURCE, sources.remove, SUBMIT, "not_found", 204),
    Route("GET", f"{_SOURCE}/items", sources.list_items, READ, "not_found"),
    Route("POST", f"{_SOURCE}/pause", sources.pause, SUBMIT, "not_found"),
    Route("POST", f"{_SOURCE}/resume", sources.resume, SUBMIT, "not_found"),
    Route("POST", f"{_SOURCE}/check", sources.check, SUBMIT, "not_found conflict"),
    Route("GET", "/costs", costs.get_costs, READ, media={"text/csv": TEXT, "image/svg+xml": TEXT}),
    # Host names and busy times reveal other projects' work.
    Route("GET", "/workers", fleet.list_workers, ADMIN),
    Route("GET", "/models", fleet.list_models, None),
    Route("GET", "/models/{model}", fleet.get_model, None, "not_found"),
    Route(
        "PUT",
        "/models/default",
        fleet.set_default,
        ADMIN,
        "conflict unsupported_media_type unknown_model",
    ),
)
"""The routes below `/v1` that take a key."""

# A player sends a signed link instead of a key.
_AUDIO = Route(
    "GET",
    "/v1/jobs/{job_id}/audio",
    audio.get_audio,
    READ,
    "not_found not_here deleted no_such_range",
    also={
        206: "The part of it that `Range` asks for.",
        307: "A redirect to the bucket, for the bearer of a link, if configured.",
    },
    media={"audio/*": BINARY},
)
_METRICS = Route("GET", "/metrics", metrics.get_metrics, ADMIN, media={"text/plain": TEXT})
_HEALTH = (
    Route(
        "GET",
        "/healthz",
        health.healthz,
        None,
        also={503: "The process is about to end: send requests elsewhere."},
    ),
    Route("GET", "/readyz", health.readyz, None, also={503: "At least one of them does not answer."}),
)

DOCUMENTED = tuple(
    (path, f"{route.method} {path}")
    for path, route in (
        *((f"/v1{route.path}", route) for route in ROUTES),
        *((route.path, route) for route in (_AUDIO, _METRICS, *_HEALTH)),
    )
)
"""The path and the name of every route of the OpenAPI description."""

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
def _build_v1() -> list[BaseRoute]:
    v1 = APIRouter(prefix="/v1", dependencies=[Depends(authenticate)])
    for route in ROUTES:
        _add(v1, route)
    return v1.routes


def _add(router: APIRouter | FastAPI, route: Route, **more: Any) -> None:  # noqa: ANN401 - as FastAPI takes it
    words = describe(route, takes_key=route not in _HEALTH)
    router.add_api_route(route.path, route.handler, methods=[route.method], **words, **more)


def add_routes(app: FastAPI) -> None:
    """Add every route, and the page, to `app`."""
    app.state.scopes = SCOPES
    # Not `include_router`, which analyzes every route once more at an app's first request: 0.4 s.
    app.routes.extend(_build_v1())
    _add(app, _AUDIO, dependencies=[Depends(audio.authenticate_listener)])
    _add(app, _METRICS, dependencies=[Depends(authenticate)])
    for route in _HEALTH:
        _add(app, route)
    # WebSockets, which OpenAPI cannot describe: docs/live.md does.
    app.add_api_websocket_route("/v1/listen", listen.listen)
    app.add_api_websocket_route("/v1/listen/wenet", listen.listen_wenet)
    app.add_api_websocket_route("/v1/realtime", listen.realtime)
    add_page(app)
