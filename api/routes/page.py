"""The page: its files as they lie in `page/`, under a policy that lets it load nothing from elsewhere.

No build step and no outside assets. The files hold nothing secret and are open; what the page shows it asks
of the API like anybody else.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Header, Response

from spool.errors import NotFound

FOLDER = Path(__file__).parents[1] / "page"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

KnownTag = Annotated[str | None, Header(alias="If-None-Match")]


def add_page(app: FastAPI) -> None:
    """Serve the page at `/` and its files below `/page/`."""
    app.add_api_route("/", front, methods=["GET"], include_in_schema=False)
    app.add_api_route("/page/{name}", asset, methods=["GET"], include_in_schema=False)


def front(known: KnownTag = None) -> Response:
    """The page itself."""
    return asset("index.html", known)


def asset(name: str, known: KnownTag = None) -> Response:
    """One file of the page. Raises NotFound for any other name."""
    files = _files()
    if name not in files:
        raise NotFound(f"The page has no file {name}.")
    body, tag = files[name]
    # Asked about each time: after an upgrade nobody keeps half of the old page.
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
    if known == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=_KINDS[Path(name).suffix])


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    found = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in _KINDS:
            body = path.read_bytes()
            found[path.name] = (body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found
