"""Buckets to which clients send recordings themselves; modules import the fixtures by name."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from ops.testbed.running_api import Live
from ops.testbed.s3 import S3Server
from spool.ids import new_id
from spool.settings import Settings
from tests.live.guarded_s3 import Account, GuardedS3

PART = 5 * 2**20
"""The least that S3 takes for a part which is not the last."""


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    name = new_id("past").lower().replace("_", "-")
    s3_server.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def proxy(s3_server: S3Server, bucket: str) -> Iterator[GuardedS3]:
    """Where clients reach the bucket, by what was signed for them alone."""
    account = Account(s3_server.access_key, s3_server.secret_key, frozenset({bucket}))
    with GuardedS3(s3_server.endpoint, account) as proxy:
        yield proxy


@pytest.fixture
def no_sweeps(live: Live) -> None:
    """moto dates every upload to 2010, so that a young one would be a stray."""
    live.services.deleter.stop()


def past_the_api(
    settings: Settings, server: S3Server, objects: str, public: str, most: int = 20 * 2**20
) -> Settings:
    """The settings with that store, which clients reach at `public`, for uploads of up to `most` bytes."""
    given = {
        "objects": objects,
        "s3_endpoint_url": server.endpoint,
        "s3_public_endpoint_url": public,
        "s3_access_key_id": SecretStr(server.access_key),
        "s3_secret_access_key": SecretStr(server.secret_key),
        "upload_max_bytes": most,
    }
    return Settings.model_validate(settings.model_dump() | given)
