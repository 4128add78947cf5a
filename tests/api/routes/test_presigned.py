"""Players that get recordings from the bucket itself, by presigned addresses."""

from collections.abc import Iterator

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy import update

from ops.testbed.running_api import Live, problem
from ops.testbed.s3 import S3Server
from spool.domain import Scope
from spool.settings import Settings
from spool.store import create_key
from spool.tables import jobs
from tests.api.routes.test_audio import uploaded, wav

BUCKET = "presigned"


@pytest.fixture
def settings(settings: Settings, s3_server: S3Server) -> Settings:
    client = s3_server.client()
    if BUCKET not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    given = {
        "objects": f"s3://{BUCKET}/archive",
        "s3_endpoint_url": s3_server.endpoint,
        "s3_public_endpoint_url": s3_server.endpoint,
        "s3_access_key_id": SecretStr(s3_server.access_key),
        "s3_secret_access_key": SecretStr(s3_server.secret_key),
    }
    return Settings.model_validate(settings.model_dump() | given)


@pytest.fixture
def listener(live: Live) -> Iterator[httpx.Client]:
    """Who has a key, and so gets links that are signed."""
    with live.services.database.begin() as tx:
        key = create_key(tx, "listener", "default", [Scope.READ, Scope.SUBMIT])
    live.services.key_cache.check_required()
    headers = {"Authorization": f"Bearer {key.text}"}
    with httpx.Client(base_url=live.url, timeout=60, verify=False, headers=headers) as client:
        yield client


def link_of(client: httpx.Client, job_id: str) -> str:
    return str(client.post(f"/v1/jobs/{job_id}/audio-link").json()["url"])


def test_a_link_leads_to_the_bucket_and_a_key_gets_the_bytes(
    http: httpx.Client, listener: httpx.Client, s3_server: S3Server, live: Live
) -> None:
    sound = wav()
    job_id = uploaded(listener, sound, "tape.html")  # by its name no sound
    link = link_of(listener, job_id)
    sent = http.get(link)
    assert sent.status_code == 307
    assert sent.headers["cache-control"] == "no-store"
    address = sent.headers["location"]
    assert address.startswith(f"{s3_server.endpoint}/{BUCKET}/archive/jobs/{job_id}/source?")
    assert "X-Amz-Expires=43200" in address
    part = httpx.get(address, headers={"Range": "bytes=0-99"})
    assert (part.status_code, part.content) == (206, sound[:100])
    assert part.headers["content-type"] == "application/octet-stream", "nothing that a browser would run"
    whole = listener.get(f"/v1/jobs/{job_id}/audio")
    assert (whole.status_code, whole.content) == (200, sound)
    assert (
        f"media-src 'self' blob: https: {s3_server.endpoint};"
        in http.get("/").headers["content-security-policy"]
    )
    problem(http.get(link.replace("signature=", "signature=0")), 401, "unauthorized")
    with live.services.database.begin() as tx:
        tx.execute(update(jobs).where(jobs.c.id == job_id).values(source_size=len(sound) + 1))
    assert http.get(link).status_code == 200, "it is not as it was stored: Spool says so, block by block"


def test_a_deleted_recording_has_no_address(http: httpx.Client, listener: httpx.Client) -> None:
    job_id = uploaded(listener, wav())
    link = link_of(listener, job_id)
    address = http.get(link).headers["location"]
    assert httpx.get(address).status_code == 200
    listener.delete(f"/v1/jobs/{job_id}").raise_for_status()
    listener.delete(f"/v1/jobs/{job_id}/content").raise_for_status()
    problem(http.get(link), 410, "deleted")
    assert httpx.get(address).status_code in (403, 404)
