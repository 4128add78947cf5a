"""The web page at `/` and the API's documentation at `/docs`, served as files from this server alone.

Neither needs a key: the files contain no secrets, and fetch what they show from the API like any other
client. Their policy forbids the browser to load anything from elsewhere, except that the page plays
recordings from web addresses or a bucket, and uploads them to the bucket. A package provides Swagger UI's
files.
"""

import re
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from api.services import services_of
from api.submission.direct import offers_uploads
from spool.recordings.probe import RECORDING_NAMES

FOLDER = Path(__file__).parents[1] / "page"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_KINDS = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
_MODULE = re.compile(r'"\./(\w+\.js)"')
# Swagger UI styles its elements inline and uses images from its style sheet.
_DOCS_POLICY = _POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'").replace(
    "img-src 'self'", "img-src 'self' data:"
)


def add_page(app: FastAPI) -> None:
    """Serve the page at `/`, the documentation at `/docs`, and the files of both."""
    app.add_api_route("/", get_page, methods=["GET"], include_in_schema=False)
    app.add_api_route("/docs", get_documentation, methods=["GET"], include_in_schema=False)
    app.add_route("/page/{name}", get_file)
    app.mount("/docs", _Swagger(packages=[("fastapi_offline", "static")]), name="swagger-ui")


async def get_page(request: Request) -> Response:
    """The page. It may play recordings from their own location (any web server, and the S3 server if players
    are sent there) or from a file that is about to be submitted, and upload to the S3 server if that is
    offered. It is told the names of recordings."""
    services = services_of(request)
    bucket = services.settings.s3_public_endpoint_url
    text, policy = _files()["index.html"].content.decode(), _POLICY
    played = "https:" if bucket is None else f"https: {bucket}"
    policy = policy.replace("media-src 'self'", f"media-src 'self' blob: {played}")
    text = text.replace("<html ", f'<html data-recording-names="{" ".join(sorted(RECORDING_NAMES))}" ', 1)
    text = text.replace("</head>", _preloads() + "</head>", 1)
    if offers_uploads(services):
        text = text.replace("<html ", "<html data-direct-uploads ", 1)
        policy = policy.replace("connect-src 'self'", f"connect-src 'self' {bucket}")
    return _guard(HTMLResponse(text), policy)


class _File(NamedTuple):
    content: bytes
    etag: str
    kind: str


@cache
def _files() -> dict[str, _File]:
    """The page's files by name, in memory: a file that a thread reads costs three times as much, and the page
    has 40."""
    found = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.suffix in _KINDS}
    return {
        name: _File(content, f'"{sha256(content).hexdigest()[:32]}"', _KINDS[Path(name).suffix])
        for name, content in found.items()
    }


async def get_file(request: Request) -> Response:
    """A file of the page. Raises HTTPException 404."""
    file = _files().get(request.path_params["name"])
    if file is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    known = request.headers.get("If-None-Match") == file.etag
    response = (
        Response(status_code=HTTPStatus.NOT_MODIFIED)
        if known
        else Response(file.content, media_type=file.kind)
    )
    response.headers["ETag"] = file.etag
    return _guard(response, _POLICY)


class _Swagger(StaticFiles):
    """Swagger UI's files under the page's policy."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file at `path`. Raises HTTPException 404."""
        return _guard(await super().get_response(path, scope), _POLICY)


@cache
def _preloads() -> str:
    """Links to every module of the page, each before those that only later ones need. Without them a browser
    learns of a module only once it has read the one that names it."""
    names: list[str] = []

    def add(name: str) -> None:
        if name not in names:
            names.append(name)
            for each in _MODULE.findall(_files()[name].content.decode()):
                add(each)

    add("app.js")
    return "".join(f'<link rel="modulepreload" href="/page/{name}">\n' for name in names)


async def get_documentation() -> Response:
    """Swagger UI for this API."""
    return _guard(HTMLResponse(_files()["docs.html"].content), _DOCS_POLICY)


def _guard(response: Response, policy: str) -> Response:
    # Browsers revalidate each file, so that an upgrade never mixes versions.
    response.headers["Cache-Control"] = "no-cache"
    response.headers["Content-Security-Policy"] = policy
    return response
