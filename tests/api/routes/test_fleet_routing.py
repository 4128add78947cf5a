"""The API takes what the fleet has: its models, its default, and says at once what waits in vain."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.testbed.running_api import Live
from ops.testbed.waiting import until
from spool.domain import AnnouncedModel
from spool.ids import new_id
from spool.store import WorkerInfo, heartbeat, register_worker, set_default_model, stop_worker

pytestmark = pytest.mark.integration


@pytest.fixture
def register(live: Live) -> Callable[..., WorkerInfo]:
    def add(name: str = "mini", state: str = "ready", **fields: Any) -> WorkerInfo:
        info = replace(live.work().info, id=new_id("wrk"), name=name, pool="metal", models=("parakeet",))
        info = replace(info, backend="metal", chip="Apple M4", memory_bytes=16 * 2**30, **fields)
        with live.services.database.begin() as tx:
            register_worker(tx, info)
            heartbeat(tx, info.id, state, 0)  # type: ignore[arg-type]
        return info

    return add


def submitted(http: httpx.Client, recordings: Path, **request: Any) -> httpx.Response:
    return http.post("/v1/jobs", json={"source": (recordings / "reel 1.wav").as_uri(), **request})


def test_a_model_that_only_a_worker_has_is_taken_and_routed_by_its_name(
    http: httpx.Client, live: Live, recordings: Path, register: Callable[..., WorkerInfo]
) -> None:
    refused = submitted(http, recordings, options={"model": "parakeet"})
    assert (refused.status_code, refused.json()["code"]) == (422, "unknown_model")
    worker = register()
    job = submitted(http, recordings, options={"model": "parakeet"}).json()
    assert (job["pool"], job["waiting_for"]) == (None, None)
    with live.services.database.begin() as tx:
        stop_worker(tx, worker.id)
    live.services.fleet.read()
    again = submitted(http, recordings, options={"model": "parakeet"})
    assert again.status_code == 202
    assert "a worker with model parakeet; none was seen for" in again.json()["waiting_for"]
    assert again.json()["waiting_for"] == http.get(f"/v1/jobs/{again.json()['id']}").json()["waiting_for"]
    (unserved,) = http.get("/v1/overview").json()["unserved"]
    assert (unserved["queue"], unserved["jobs"]) == ("spool.model:parakeet", 2)
    until(lambda: bool(http.get("/healthz").json()["detail"]), "health says so")
    assert "2 jobs wait" in http.get("/healthz").json()["detail"][0]


def test_what_a_machine_has_to_be_is_part_of_the_route(
    http: httpx.Client, recordings: Path, register: Callable[..., WorkerInfo]
) -> None:
    register()
    asked = {"backend": "metal", "memory_gb": 16}
    job = submitted(http, recordings, options={"model": "parakeet"}, requires=asked).json()
    assert job["waiting_for"] is None
    assert job["requires"] == {**asked, "chip": None}
    more = submitted(http, recordings, options={"model": "parakeet"}, requires={"memory_gb": 32}).json()
    assert more["waiting_for"] == (
        "a worker with model parakeet on at least 32 GiB of memory; none is running"
    )
    refused = submitted(http, recordings, requires={"gpu": True})
    assert refused.status_code == 422


def test_workers_with_different_weights_under_one_name_are_not_mixed(
    http: httpx.Client, live: Live, recordings: Path, register: Callable[..., WorkerInfo]
) -> None:
    register("mini-1", model_facts={"parakeet": AnnouncedModel(sha256="a" * 64)})
    register("mini-2", model_facts={"parakeet": AnnouncedModel(sha256="b" * 64)})
    live.services.fleet.read()
    refused = submitted(http, recordings, options={"model": "parakeet"})
    assert refused.status_code == 409
    assert "mini-1: aaaaaaaaaaaa…; mini-2: bbbbbbbbbbbb…" in refused.json()["detail"]
    pinned = submitted(http, recordings, options={"model": "parakeet"}, worker="mini-2")
    assert pinned.status_code == 202


def test_a_job_that_is_rescored_waits_for_a_worker_with_both_models(
    http: httpx.Client, recordings: Path, register: Callable[..., WorkerInfo]
) -> None:
    register()
    options = {"model": "parakeet", "decoder": "beam"}
    unknown = submitted(http, recordings, options=options | {"rescore": {"model": "nobody-has-it"}})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown_model")
    job = submitted(http, recordings, options=options | {"rescore": {"model": "demo-tdt"}}).json()
    assert job["options"]["rescore"]["model"] == "demo-tdt"
    assert "with model parakeet and the rescoring model demo-tdt;" in job["waiting_for"]


def test_the_default_model_is_one_setting_of_the_system(
    http: httpx.Client, live: Live, recordings: Path, register: Callable[..., WorkerInfo]
) -> None:
    register()
    assert submitted(http, recordings).json()["options"]["model"] == "demo-tdt"
    unknown = http.put("/v1/models/default", json={"name": "nobody-has-it"})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown_model")
    assert http.put("/v1/models/default", json={"name": "parakeet"}).json() == {"name": "parakeet"}
    assert submitted(http, recordings).json()["options"]["model"] == "parakeet"
    with live.services.database.begin() as tx:
        set_default_model(tx, "demo-tdt")  # as another process of the API does it
    assert submitted(http, recordings).json()["options"]["model"] == "demo-tdt"
    http.put("/v1/models/default", json={"name": "parakeet"})
    defaults = [model["name"] for model in http.get("/v1/models").json()["items"] if model["default"]]
    assert defaults == ["parakeet"]


def test_a_query_parameter_that_no_route_knows_is_refused_by_name(http: httpx.Client) -> None:
    answer = http.get("/v1/jobs?stat=failed&limit=1")
    assert answer.status_code == 422
    assert (
        "query.stat: is not a parameter of this route; parameters: batch, content" in answer.json()["detail"]
    )
    assert http.get("/v1/jobs?state=failed&limit=1").status_code == 200


def test_a_refused_folder_names_the_setting_that_allows_it(http: httpx.Client) -> None:
    refused = http.post("/v1/jobs", json={"source": "file:///etc/passwd"})
    assert refused.status_code == 403
    assert "SPOOL_SOURCE_ROOTS" in refused.json()["detail"]
