"""How an S3 server is reached: its options, a client with our timeouts and retries, and a bucket."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import botocore.loaders
import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from pydantic import SecretStr

from spool.errors import SourceForbidden, StorageError
from spool.objects.s3_errors import s3_errors
from spool.objects.s3_link import Link, read_by_link

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
    """A client of the store at this endpoint, with the credentials that are there now."""
    checksums = "when_supported" if options.checksums else "when_required"
    session = botocore.session.get_session()
    session.register_component("data_loader", _descriptions())
    return session.create_client(
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


@cache
def _descriptions() -> Any:  # noqa: ANN401 - boto3's own
    """Reads the descriptions of S3 once in a process, since that takes a tenth of a second."""
    return botocore.loaders.create_loader()


class S3Bucket:
    """What lies in a bucket below `prefix`, and how it is reached. Safe to share between threads."""

    def __init__(self, bucket: str, prefix: str = "", options: S3Options | None = None) -> None:
        self.bucket = bucket
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.options = options or S3Options()

    def call(self, operation: str, key: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - boto3's own
        """One S3 operation on one object, its failures as Spool's errors."""
        with self.errors(self.address_of(key)):
            method: Callable[..., dict[str, Any]] = getattr(self.client, operation)
            return method(Bucket=self.bucket, Key=self.prefix + key, **parameters)

    def pages(self, operation: str, prefix: str) -> Iterator[dict[str, Any]]:
        """The pages of a list of what lies below `prefix`."""
        pages = self.client.get_paginator(operation).paginate(Bucket=self.bucket, Prefix=self.prefix + prefix)
        with self.errors(self.address_of(prefix)):
            yield from pages

    def sign(self, client: Any, operation: str, key: str, seconds: int, **parameters: object) -> str:  # noqa: ANN401
        """A presigned address for one operation on one object."""
        own = {"Bucket": self.bucket, "Key": self.prefix + key, **parameters}
        with self.errors(self.address_of(key)):
            url: str = client.generate_presigned_url(operation, own, ExpiresIn=seconds)
        return url

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Failures of boto3 as Spool's errors; `what` is the object or bucket in messages. After one that
        credentials may explain, the next call looks for credentials anew: they may have been exchanged."""
        try:
            with s3_errors(what):
                yield
        except (SourceForbidden, StorageError):
            for name in ("client", "public_client", "signing_client"):
                vars(self).pop(name, None)
            raise

    def address_of(self, key: str) -> str:
        """What messages call the object."""
        return f"s3://{self.bucket}/{self.prefix}{key}"

    @cached_property
    def client(self) -> Any:  # noqa: ANN401 - boto3 makes its clients at run time
        """The client of the store's endpoint, or of signed addresses."""
        link = self.options.link
        if link is None:
            return client_of(self.options, self.options.endpoint_url)
        client = client_of(self.options, None, signature_version=UNSIGNED)
        read_by_link(client, link)
        return client

    @cached_property
    def public_client(self) -> Any:  # noqa: ANN401
        """Signs addresses at the endpoint that others reach."""
        return client_of(self.options, self.options.public_endpoint_url, signature_version="s3v4")

    @cached_property
    def signing_client(self) -> Any:  # noqa: ANN401
        """Signs addresses at the endpoint that we reach."""
        return client_of(self.options, self.options.endpoint_url, signature_version="s3v4")


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
