"""`spool keys`: creates, lists and revokes API keys, directly in the database.

Anyone with write access to the configured database may create keys; the first key requires no other.
"""

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

from cyclopts import Parameter
from pydantic import TypeAdapter, ValidationError
from rich.text import Text

from api.cli.connection import Json, err, out
from api.cli.database import open_database
from api.cli.tables import Cell, table_of
from spool import clock
from spool.commandline.app import new_app
from spool.domain.api_keys import Scope
from spool.domain.manifest import Name
from spool.errors import InvalidRequest, first_fault
from spool.schemas.common import Project
from spool.settings import load_settings
from spool.store import api_keys as store
from spool.store.api_keys import ApiKey

app = new_app("Manage API keys, by project and scope.", "keys")

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"([1-9]\d{0,4})([hdw])")


@app.command
def create(
    *,
    name: Annotated[str, Parameter(help="Name of the key, for display.")],
    project: Annotated[str | None, Parameter(help="Limit the key to one project.")] = None,
    scope: Annotated[
        list[Scope] | None,
        Parameter(help="read or submit (repeat for both; the default), or admin for every project."),
    ] = None,
    source: Annotated[
        list[str] | None,
        Parameter(
            metavar="ADDRESS",
            help="Limit the sources of its jobs to s3://bucket/prefix/, file:///folder/ or https://host/. "
            "Repeat for several. Default: whatever the settings allow.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        Parameter(metavar="WHEN", help="Expire after 90d, 12h or 4w, or on a day such as 2027-01-31 (UTC)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a key and print it. It is not shown again."""
    chosen = scope or [Scope.READ, Scope.SUBMIT]
    with open_database(load_settings()) as database, database.begin() as tx:
        minted = store.create_key(
            tx,
            _check(Name, name, "--name"),
            None if project is None else _check(Project, project, "--project"),
            chosen,
            sources=None if source is None else [_source(address) for address in source],
            expires_at=None if expires is None else _moment(expires),
        )
    if as_json:
        print(json.dumps({"id": minted.id, "key": minted.text}, indent=2))
        return
    print(minted.text)
    hint = (
        f"{minted.id}: this key is not shown again. Clients read it from SPOOL_API_KEY or SPOOL_API_KEY_FILE."
    )
    err.print(Text(hint), soft_wrap=True)


@app.command(name="list")
def list_keys(*, as_json: Json = False) -> None:
    """List all keys, including revoked ones, without their secrets."""
    with open_database(load_settings()) as database, database.read() as tx:
        keys = store.list_keys(tx)
    if as_json:
        print(json.dumps([_document(key) for key in keys], indent=2))
    elif keys:
        titles = ("key", "state", "project", "scopes", "last used", "expires", "name")
        out.print(table_of(titles, map(_cells, keys)))
    else:
        out.print("no keys; on loopback the API accepts the token that `spool up` prints", style="dim")


@app.command
def revoke(
    key_id: Annotated[str, Parameter(name="ID", help="A key's id, as `spool keys list` shows it.")],
    /,
) -> None:
    """Revoke a key."""
    with open_database(load_settings()) as database, database.begin() as tx:
        key = store.revoke_key(tx, key_id)
    out.print(
        Text(f"{key.id} ({key.name}) is revoked; running servers stop accepting it within 5 s"),
        soft_wrap=True,
    )


def _check(kind: Any, value: str, where: str) -> str:  # noqa: ANN401 - an annotated type
    try:
        return str(TypeAdapter(kind).validate_python(value))
    except ValidationError as error:
        raise InvalidRequest(f"{first_fault(error, where)}.") from None


def _source(address: str) -> str:
    """The address in the form in which sources are compared."""
    scheme, colon, rest = address.partition("://")
    if not colon or scheme.lower() not in {"s3", "https", "file"} or not rest.strip("/"):
        raise InvalidRequest(
            f"--source {address}: write s3://bucket/prefix/, https://host/ or file:///folder/."
        )
    if scheme.lower() != "file":
        host, slash, path = rest.partition("/")
        return f"{scheme.lower()}://{host.lower() if scheme.lower() == 'https' else host}{slash or '/'}{path}"
    return Path(unquote(f"/{rest.lstrip('/')}")).resolve().as_uri()


def _moment(text: str) -> datetime:
    now = clock.now()
    if span := _SPAN.fullmatch(text):
        return now + timedelta(**{_UNITS[span[2]]: int(span[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"--expires {text}: write 90d, 12h or 4w, or a day such as 2027-01-31."
        ) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    if moment <= now:
        raise InvalidRequest(f"--expires {text} is in the past.")
    return moment


def _document(key: ApiKey) -> dict[str, object]:
    fields = {name: value for name, value in asdict(key).items() if name != "sha256"}
    times = ("created_at", "expires_at", "revoked_at", "used_at")
    shown = {name: value.isoformat() if (value := fields[name]) else None for name in times}
    return fields | shown | {"scopes": sorted(key.scopes), "state": _state(key)}


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "alive" if key.alive else "expired"


def _cells(key: ApiKey) -> list[Cell]:
    return [
        key.id,
        _state(key),
        key.project or "every",
        " ".join(sorted(key.scopes)),
        _day(key.used_at) or "never",
        _day(key.expires_at) or "never",
        key.name,
    ]


def _day(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d}" if moment else ""
