"""What the two clients share: the server's address, the key, and how a call becomes a method."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from spool.client.exchange import Ask, Contact, Flow, Retries

Method = TypeVar("Method", bound=Callable[..., Any])

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


def as_method(method: Method) -> Method:
    """Makes help() and editors show the call's own parameters after `self`."""
    signature = inspect.signature(method)
    own = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *signature.parameters.values()]
    method.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return method


def answer(ask: Ask) -> Flow[httpx.Response]:
    """Send the request, and return the answer unparsed."""
    response = yield ask
    assert response is not None
    return response


def _key_of_environment() -> str | None:
    if key := os.environ.get("SPOOL_API_KEY"):
        return key
    file = os.environ.get("SPOOL_API_KEY_FILE")
    return Path(file).read_text(encoding="utf-8").strip() if file else None
