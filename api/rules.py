"""What each route asks of its caller, on one screen. A route that is not here lets nobody in.

Knows routes by method and path; a test holds this against the routes that there are.
"""

from collections.abc import Mapping

from spool.keys import Scope

RULES: Mapping[str, Scope | None] = {
    "POST /v1/jobs": Scope.SUBMIT,
    "GET /v1/jobs": Scope.READ,
    "GET /v1/jobs/{job_id}": Scope.READ,
    "DELETE /v1/jobs/{job_id}": Scope.SUBMIT,
    "DELETE /v1/jobs/{job_id}/content": Scope.SUBMIT,
    "POST /v1/jobs/{job_id}/retry": Scope.SUBMIT,
    "GET /v1/jobs/{job_id}/transcript": Scope.READ,
    "GET /v1/jobs/{job_id}/phrases": Scope.READ,
    "POST /v1/jobs/{job_id}/audio-link": Scope.READ,
    "GET /v1/jobs/{job_id}/audio": Scope.READ,
    "GET /v1/jobs/{job_id}/events": Scope.READ,
    "GET /v1/overview": Scope.READ,
    # Whoever hands in hears the words: they are the answer.
    "POST /v1/audio/transcriptions": Scope.SUBMIT,
    "POST /v1/batches": Scope.SUBMIT,
    "GET /v1/batches": Scope.READ,
    "GET /v1/batches/{batch_id}": Scope.READ,
    "DELETE /v1/batches/{batch_id}": Scope.SUBMIT,
    "GET /v1/batches/{batch_id}/results": Scope.READ,
    "POST /v1/batches/{batch_id}/retry-failed": Scope.SUBMIT,
    "GET /v1/batches/{batch_id}/events": Scope.READ,
    # The address of an endpoint may hold a secret of its receiver.
    "POST /v1/webhooks": Scope.SUBMIT,
    "GET /v1/webhooks": Scope.SUBMIT,
    "GET /v1/webhooks/{webhook_id}": Scope.SUBMIT,
    "DELETE /v1/webhooks/{webhook_id}": Scope.SUBMIT,
    "POST /v1/webhooks/{webhook_id}/rotate": Scope.SUBMIT,
    "POST /v1/webhooks/{webhook_id}/enable": Scope.SUBMIT,
    "POST /v1/webhooks/{webhook_id}/test": Scope.SUBMIT,
    "GET /v1/webhooks/{webhook_id}/deliveries": Scope.SUBMIT,
    "POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay": Scope.SUBMIT,
    "GET /v1/costs": Scope.READ,
    # Hosts and busy seconds tell of everybody's work.
    "GET /v1/workers": Scope.ADMIN,
    "GET /metrics": Scope.ADMIN,
    # Which names jobs may use: any key's business.
    "GET /v1/models": None,
}

OPEN = frozenset({"GET /healthz", "GET /readyz", "GET /", "GET /page/{name}"})
"""Routes that ask nobody; so do the pages that describe the API."""
