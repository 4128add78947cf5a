"""Callers and what they may see: every access to a job, batch or webhook goes through here.

An object of another project is reported like one that does not exist. `authentication` identifies callers.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from api.middleware.log_context import set_subject
from spool.domain.api_keys import Scope
from spool.domain.jobs import Job
from spool.domain.ledger import CostSums
from spool.errors import Forbidden, NotFound
from spool.ids import is_id
from spool.store.api_keys import ApiKey
from spool.store.archive.sources import get_source
from spool.store.archive.uploads import get_upload
from spool.store.batches import get_batch
from spool.store.jobs import get_job
from spool.store.ledger.charges import job_with_cost
from spool.store.webhooks import get_webhook
from spool.tables.batches import Batch
from spool.tables.sources import WatchedSource
from spool.tables.uploads import StoredUpload
from spool.tables.webhooks import Webhook

_CLIMBS = re.compile(r"/(\.|%2e){1,2}(/|$)", re.IGNORECASE)
DEFAULT_PROJECT = "default"


class _Owned(Protocol):
    @property
    def project(self) -> str: ...


T = TypeVar("T", bound=_Owned)


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request."""

    name: str
    """The id of the key; `operator` for the server's own token, `anybody` if no key is required."""
    project: str | None
    """None: every project."""
    scopes: frozenset[Scope]
    sources: tuple[str, ...] | None = None
    """Prefixes of addresses that may be read; None: whatever the settings allow."""

    @property
    def key_id(self) -> str | None:
        """The id of the key, if there is one."""
        return self.name if is_id(self.name, "key") else None

    @property
    def is_anybody(self) -> bool:
        """Whether the caller was admitted without a key because none is required."""
        return self.name == "anybody"

    def may(self, scope: Scope | None) -> bool:
        """Whether the caller has the scope; None is granted to every caller."""
        return scope is None or scope in self.scopes or Scope.ADMIN in self.scopes

    def sees(self, project: str) -> bool:
        """Whether the caller may see this project."""
        return self.project is None or self.project == project

    def project_for(self, requested: str | None) -> str:
        """The project of what the caller submits or names. Raises Forbidden for any project but its own."""
        if self.project is None:
            return requested or DEFAULT_PROJECT
        if requested not in (None, self.project):
            raise Forbidden(f"This key can access only the project {self.project}.")
        return self.project

    def reaches(self, uri: str) -> bool:
        """Whether the caller's key may read sources at this address."""
        return self.sources is None or any(is_below(uri, beginning) for beginning in self.sources)


ANYBODY = Principal("anybody", None, frozenset({Scope.ADMIN}))
OPERATOR = Principal("operator", None, frozenset({Scope.ADMIN}))


def principal_of(key: ApiKey) -> Principal:
    """The caller with this key."""
    return Principal(key.id, key.project, key.scopes, key.sources)


def is_below(address: str, beginning: str) -> bool:
    """Whether an address equals the other one or is below it, compared by path segments."""
    if address == beginning:
        return True
    if address.startswith("https://") and _CLIMBS.search(address.partition("?")[0]):
        return False  # the server may resolve the dots to a parent folder
    return address.startswith(beginning if beginning.endswith("/") else f"{beginning}/")


def _get_visible(caller: Principal, prefix: str, kind: str, own_id: str, read: Callable[[str], T]) -> T:
    """What `read` finds. Raises NotFound, worded alike for what belongs to other projects."""
    if is_id(own_id, prefix):  # no query for a malformed id
        found = read(own_id)
        if caller.sees(found.project):
            return found
    raise NotFound(f"There is no {kind} {own_id}.")


def get_visible_job(tx: Connection, caller: Principal, job_id: str) -> Job:
    """The caller's job. Raises NotFound."""
    job = _get_visible(caller, "job", "job", job_id, partial(get_job, tx))
    set_subject(job.ids)
    return job


def get_visible_job_with_cost(tx: Connection, caller: Principal, job_id: str) -> tuple[Job, CostSums]:
    """The caller's job and its cost so far, in one statement. Raises NotFound."""
    if is_id(job_id, "job"):
        job, cost = job_with_cost(tx, job_id)
        if caller.sees(job.project):
            set_subject(job.ids)
            return job, cost
    raise NotFound(f"There is no job {job_id}.")


def get_visible_batch(tx: Connection, caller: Principal, batch_id: str) -> Batch:
    """The caller's batch. Raises NotFound."""
    batch = _get_visible(caller, "bat", "batch", batch_id, partial(get_batch, tx))
    set_subject({"batch_id": batch.id})
    return batch


def get_visible_webhook(tx: Connection, caller: Principal, webhook_id: str) -> Webhook:
    """The caller's webhook. Raises NotFound."""
    return _get_visible(caller, "whk", "webhook", webhook_id, partial(get_webhook, tx))


def get_visible_upload(tx: Connection, caller: Principal, upload_id: str) -> StoredUpload:
    """The caller's upload. Raises NotFound."""
    return _get_visible(caller, "upl", "upload", upload_id, partial(get_upload, tx))


def get_visible_source(tx: Connection, caller: Principal, source_id: str) -> WatchedSource:
    """The caller's source. Raises NotFound."""
    return _get_visible(caller, "src", "source", source_id, partial(get_source, tx))
