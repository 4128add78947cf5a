"""How an S3 server is reached: its options, and boto3's client with our timeouts and retries."""

from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from pydantic import SecretStr

from spool.objects.s3_link import Link

READ_SECONDS = 10


@dataclass(frozen=True, slots=True)
class S3Options:
    """How to reach the store. Without credentials boto3 looks in its usual places."""

    endpoint_url: str | None = None
    region: str = "us-east-1"
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    checksums: bool = True
    public_endpoint_url: str | None = None
    """Where others reach the store."""
    link: Link | None = None
    """Signed addresses of the one object that is read; there are no credentials then."""


def client_of(options: S3Options, endpoint_url: str | None, **config: object) -> Any:  # noqa: ANN401 - boto3's own
    """A client of the store at this endpoint."""
    checksums = "when_supported" if options.checksums else "when_required"
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=options.region,
        aws_access_key_id=_plain(options.access_key_id),
        aws_secret_access_key=_plain(options.secret_access_key),
        config=Config(
            # Whoever waits does not do so for long: jobs try again on their own, clients of the API too.
            retries={"mode": "standard", "max_attempts": 3},
            connect_timeout=5,
            read_timeout=READ_SECONDS,
            max_pool_connections=32,
            request_checksum_calculation=checksums,
            response_checksum_validation=checksums,
            # Buckets in the host name need DNS that S3-alikes seldom have.
            s3={"addressing_style": "path"} if endpoint_url else {},
            **config,
        ),
    )


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
