"""Every operation of the OpenAPI page against the real API, with requests that schemathesis makes of it.

Bounded, and the same on every run. What is checked: no 5xx, only documented statuses, media types, headers
and bodies of answers, and that what breaks the schema is refused.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from pydantic import SecretStr
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance, use_after_free

from ops.testbed.running_api import Live
from ops.testbed.s3 import S3Server
from spool.domain import JobState
from spool.errors import LeaseLost
from spool.settings import Settings
from spool.store import JobFilter, list_jobs
from tests.api.openapi.story import REEL

# A cursor, a source and a period mean more than a schema can say, so a valid form may be refused. DELETE
# cancels a job and does not take it away. Tokens are a question of `test_refusals`: this API asks for none.
EXCLUDED = [positive_data_acceptance, use_after_free, ignored_auth]
BOUNDED = hypothesis.settings(
    max_examples=3,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
Parameters = dict[str, str] | None


@pytest.fixture
def settings(settings: Settings, database_url: str, s3_server: S3Server) -> Settings:
    """On each database, with an object store that the addresses of the examples lead to."""
    client = s3_server.client()
    client.create_bucket(Bucket="archive")
    for number in range(3):
        client.put_object(Bucket="archive", Key=f"1974/reel-{number:04}.flac", Body=b"fLaC")
    overrides = {
        "database_url": database_url,
        "s3_endpoint_url": s3_server.endpoint,
        "s3_access_key_id": SecretStr(s3_server.access_key),
        "s3_secret_access_key": SecretStr(s3_server.secret_key),
    }
    return settings.model_copy(update=overrides)


def attempt(operation: Any, mode: GenerationMode, known: Parameters) -> set[int]:
    """Try the operation; the statuses that it answered with."""
    statuses = set()

    @BOUNDED
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode, path_parameters=known))
    def try_case(case: "Case[Any]") -> None:
        # uvicorn itself refuses a request line of more than 64 KiB, in plain text.
        hypothesis.assume(len(str(case.query)) < 4000)
        statuses.add(case.call_and_validate(excluded_checks=EXCLUDED).status_code)

    try_case()
    return statuses


def existing(http: httpx.Client, path: str) -> list[Parameters]:
    """Path parameters of something that exists, where the path has any."""
    name = path.partition("{")[2].partition("}")[0]
    if not name or path.endswith("/events"):  # a stream, open for as long as there is something to wait for
        return []
    items = http.get(path.partition("/{")[0]).json().get("items")  # uploads have no list
    # Of a second parameter nothing is known; a webhook that is removed by one operation is gone for the next.
    if not items or path.count("{") != 1:
        return []
    return [{name: items[-1]["name" if name in ("name", "glossary", "language_model", "model") else "id"]}]


@pytest.fixture
def worked(live: Live) -> Iterator[None]:
    """Somebody transcribes what is uploaded, or the operation that waits for that would wait for ever."""
    ended = threading.Event()

    def work() -> None:
        worker = live.work()
        while not ended.wait(0.02):
            with live.services.database.read() as tx:
                waiting = list_jobs(tx, JobFilter(state=JobState.QUEUED), None, 100).items
            for job in waiting:
                if job.source.kind == "upload":
                    with contextlib.suppress(AssertionError, LeaseLost):  # cancelled a moment before
                        worker.finish(job.id)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    ended.set()
    thread.join()


# The API runs in threads of this process, and its libraries draw numbers when they like.
@pytest.mark.filterwarnings(
    "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
)
@pytest.mark.parametrize(
    "database_url", ["postgresql", pytest.param("sqlite", marks=pytest.mark.long)], indirect=True
)
@pytest.mark.usefixtures("worked")
@pytest.mark.timeout(600)  # some hundred operations, each tried several times
def test_the_api_is_what_its_page_says(live: Live, http: httpx.Client) -> None:
    schema = schemathesis.openapi.from_url(f"{live.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) >= 17

    # Given a job and a batch that paths with an id can be about
    assert http.post("/v1/jobs", json=REEL).status_code == 202
    assert http.post("/v1/batches", json={"source": "s3://archive/1974/"}).status_code == 202

    answered = {}
    for operation in operations:
        statuses = attempt(operation, GenerationMode.POSITIVE, None)
        for known in existing(http, operation.path):
            statuses |= attempt(operation, GenerationMode.POSITIVE, known)
        answered[operation.label] = statuses
        if any(operation.query) or any(operation.body):
            attempt(operation, GenerationMode.NEGATIVE, None)

    # So that the test cannot come to try refusals alone
    for label in ("GET /v1/jobs/{job_id}", "GET /v1/costs", "GET /v1/batches/{batch_id}/results"):
        assert 200 in answered[label], (label, answered[label])
