"""The web page at `/` and the API's documentation at `/docs`, served as files from this server alone.

Neither needs a key: the files contain no secrets, and fetch what they show from the API like any other
client. Their policy forbids the browser to load anything from elsewhere, except that the page plays
recordings from web addresses or a bucket, and uploads them to the bucket. A package provides Swagger UI's
files.
"""

from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
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
# Swagger UI styles its elements inline and uses images from its style sheet.
_DOCS_POLICY = _POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'").replace(
    "img-src 'self'", "img-src 'self' data:"
)


class _Files(StaticFiles):
    """Files under the page's policy. Browsers revalidate each, so that an upgrade never mixes versions."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file at `path`. Raises HTTPException 404."""
        response = await super().get_response(path, scope)
        return _guard(response, _POLICY)


def add_page(app: FastAPI) -> None:
    """Serve the page at `/`, the documentation at `/docs`, and the files of both."""
    app.add_api_route("/", get_page, methods=["GET"], include_in_schema=False)
    app.add_api_route("/docs", get_documentation, methods=["GET"], include_in_schema=False)
    app.mount("/page", _Files(directory=FOLDER), name="page")
    app.mount("/docs", _Files(packages=[("fastapi_offline", "static")]), name="swagger-ui")


async def get_page(request: Request) -> Response:
    """The page. It may play recordings from their own location (any web server, and the S3 server if players
    are sent there) or from a file that is about to be submitted, and upload to the S3 server if that is
    offered. It is told the names of recordings."""
    services = services_of(request)
    bucket = services.settings.s3_public_endpoint_url
    text, policy = (FOLDER / "index.html").read_text(encoding="utf-8"), _POLICY
    played = "https:" if bucket is None else f"https: {bucket}"
    policy = policy.replace("media-src 'self'", f"media-src 'self' blob: {played}")
    text = text.replace("<html ", f'<html data-recording-names="{" ".join(sorted(RECORDING_NAMES))}" ', 1)
    if offers_uploads(services):
        text = text.replace("<html ", "<html data-direct-uploads ", 1)
        policy = policy.replace("connect-src 'self'", f"connect-src 'self' {bucket}")
    return _guard(HTMLResponse(text), policy)


async def get_documentation() -> Response:
    """Swagger UI for this API."""
    return _guard(FileResponse(FOLDER / "docs.html"), _DOCS_POLICY)


def _guard(response: Response, policy: str) -> Response:
    response.headers["Cache-Control"] = "no-cache"
    response.headers["Content-Security-Policy"] = policy
    return response
