"""Who may call: with a token in the settings, whoever sends it; without one, whoever reaches loopback.

Knows the one token and nothing of projects. The settings refuse any other address without a token.
"""

import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from spool.errors import Unauthorized

_bearer = HTTPBearer(auto_error=False, description="The server's `SPOOL_API_TOKEN`, where it has one.")


def require_token(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """Let the request pass, or raise `Unauthorized`; a near miss takes as long as any other."""
    expected = request.app.state.settings.api_token
    if expected is None:
        return
    if credentials is None:
        raise Unauthorized("Send the API token as `Authorization: Bearer …`.")
    if not hmac.compare_digest(credentials.credentials.encode(), expected.get_secret_value().encode()):
        raise Unauthorized("The API token is not the one this server knows.")
