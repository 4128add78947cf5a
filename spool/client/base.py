"""What every client is opened with: the server's address and the key."""

import os
import ssl
from pathlib import Path

from spool.client.exchange import Contact, Retries

DEFAULT_URL = "http://127.0.0.1:8700"


class Session:
    """The server's address and key: `SPOOL_URL` and `SPOOL_API_KEY` (or `SPOOL_API_KEY_FILE`) by default. An
    address that ends in `/v1`, as OpenAI's clients have it, means the same. The key is sent only to that
    server: redirects are not followed."""

    def __init__(
        self, url: str | None = None, key: str | None = None, *, retries: Retries | None = None
    ) -> None:
        self.url = (url or os.environ.get("SPOOL_URL") or DEFAULT_URL).rstrip("/").removesuffix("/v1")
        token = key or _key_of_environment()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._contact = Contact(retries or Retries())
        # Plain http has no certificate to verify, and reading the system's takes time.
        self._verify = self.url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _key_of_environment() -> str | None:
    if key := os.environ.get("SPOOL_API_KEY"):
        return key
    file = os.environ.get("SPOOL_API_KEY_FILE")
    return Path(file).read_text(encoding="utf-8").strip() if file else None
