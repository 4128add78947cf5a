"""An S3 server with accounts: a proxy that verifies each request's signature and lets an account into its own
buckets only, and a page of another origin where the bucket's CORS rules say so, since moto lets everybody in.

Signature Version 4 in a header or in the address, as "Authenticating Requests (AWS Signature Version 4)" of
Amazon S3's API reference has it; rules are evaluated as "Using cross-origin resource sharing" of its user
guide says.
"""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import Message
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs, urlsplit

from botocore.exceptions import ClientError

from ops.testbed.faulty_s3 import FaultyS3
from ops.testbed.s3 import S3Server


@dataclass(frozen=True, slots=True)
class Account:
    """A key with its secret, and the buckets that it may read and write."""

    key_id: str
    secret: str
    buckets: frozenset[str]


class GuardedS3(FaultyS3):
    """Passes on what one of the accounts signed for one of its buckets."""

    def __init__(self, target: str, *accounts: Account) -> None:
        super().__init__(target)
        self._store = S3Server(target).client()
        self.accounts = {account.key_id: account for account in accounts}
        self.ahead = timedelta()
        """How far the store's clock is before ours."""
        self.addresses: list[str] = []
        """The signatures of signed addresses that were let in, in order."""
        self.expired: set[str] = set()
        """Signatures of addresses that are refused as expired."""

    def cors(self, method: str, path: str, headers: Message) -> dict[str, str]:
        """What the first rule of the bucket allows that has the origin, the method and every header."""
        origin = headers.get("Origin")
        if origin is None:
            return {}
        wanted = headers.get("Access-Control-Request-Method", method)
        named = headers.get("Access-Control-Request-Headers", "").lower().split(",")
        asked = [each.strip() for each in named if each.strip()]
        for rule in self._rules(urlsplit(path).path.split("/")[1]):
            allowed = [each.lower() for each in rule.get("AllowedHeaders", ())]
            if (
                any(fnmatchcase(origin, each) for each in rule["AllowedOrigins"])
                and wanted in rule["AllowedMethods"]
                and all(any(fnmatchcase(one, each) for each in allowed) for one in asked)
            ):
                return {
                    "Access-Control-Allow-Origin": origin,
                    "Access-Control-Allow-Methods": ", ".join(rule["AllowedMethods"]),
                    "Access-Control-Allow-Headers": ", ".join(asked),
                    "Access-Control-Expose-Headers": ", ".join(rule.get("ExposeHeaders", ())),
                    "Access-Control-Max-Age": str(rule.get("MaxAgeSeconds", 0)),
                    "Vary": "Origin",
                }
        return {}

    def _rules(self, bucket: str) -> list[dict[str, Any]]:
        try:
            rules: list[dict[str, Any]] = self._store.get_bucket_cors(Bucket=bucket)["CORSRules"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchCORSConfiguration":
                raise
            return []
        return rules

    def refusal(self, method: str, path: str, headers: Message) -> str | None:
        """The error code; None for a request that is signed as it has to be."""
        if method == "OPTIONS":  # a browser asks before it sends what is signed
            return None
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        by_address = "X-Amz-Signature" in query
        if by_address:
            scope, names, given = (
                query[f"X-Amz-{name}"] for name in ("Credential", "SignedHeaders", "Signature")
            )
            stamp, payload = query["X-Amz-Date"], "UNSIGNED-PAYLOAD"
        elif headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 "):
            fields = dict(each.strip().split("=", 1) for each in headers["Authorization"][17:].split(","))
            scope, names, given = fields["Credential"], fields["SignedHeaders"], fields["Signature"]
            stamp, payload = headers["x-amz-date"], headers["x-amz-content-sha256"]
        else:
            return "AccessDenied"
        key_id, _, scope = scope.partition("/")
        account = self.accounts.get(key_id)
        if account is None:
            return "InvalidAccessKeyId"
        pairs = sorted(each if "=" in each else f"{each}=" for each in parts.query.split("&") if each)
        pairs = [pair for pair in pairs if not pair.startswith("X-Amz-Signature=")]
        lines = [f"{name}:{' '.join(headers.get(name, '').split())}" for name in names.split(";")]
        unsigned = {name.lower() for name in headers if name.lower().startswith("x-amz-")} - set(
            names.split(";")
        )
        request = "\n".join([method, parts.path, "&".join(pairs), *lines, "", names, payload])
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = f"AWS4{account.secret}".encode()
        for part in (*scope.split("/"), text):
            key = hmac.digest(key, part.encode(), "sha256")
        if key.hex() != given or (by_address and unsigned):
            return "SignatureDoesNotMatch"
        if by_address:
            until = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            until += timedelta(seconds=int(query["X-Amz-Expires"]))
            if datetime.now(UTC) + self.ahead > until or given in self.expired:
                return "AccessDenied"
            self.addresses.append(given)
        return None if parts.path.split("/")[1] in account.buckets else "AccessDenied"
