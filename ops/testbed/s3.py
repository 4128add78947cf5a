"""An S3 server as tests see it."""

from dataclasses import dataclass
from typing import Any

import boto3


@dataclass(frozen=True)
class S3Server:
    """Where an S3 server listens, and how to be let in."""

    endpoint: str
    access_key: str = "test-access-key"
    secret_key: str = "test-secret-key"
    region: str = "us-east-1"

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )
