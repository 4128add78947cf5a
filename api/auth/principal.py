"""Callers and what they may see: every access to a job, batch or webhook goes through here.

An object of another project is reported like one that does not exist. `authentication` identifies callers.
"""

import re
from dataclasses import dataclass

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


def get_visible_job(tx: Connection, caller: Principal, job_id: str) -> Job:
    """The caller's job. Raises NotFound, worded alike for jobs of other projects."""
    if is_id(job_id, "job"):  # no query for a malformed id
        job = get_job(tx, job_id)
        if caller.sees(job.project):
            set_subject(job.ids)
            return job
    raise NotFound(f"There is no job {job_id}.")


def get_visible_job_with_cost(tx: Connection, caller: Principal, job_id: str) -> tuple[Job, CostSums]:
    """The caller's job and its cost so far, in one statement. Raises like `get_visible_job`."""
    if is_id(job_id, "job"):
        job, cost = job_with_cost(tx, job_id)
        if caller.sees(job.project):
            set_subject(job.ids)
            return job, cost
    raise NotFound(f"There is no job {job_id}.")


def get_visible_batch(tx: Connection, caller: Principal, batch_id: str) -> Batch:
    """The caller's batch. Raises NotFound, worded alike for batches of other projects."""
    if is_id(batch_id, "bat"):
        batch = get_batch(tx, batch_id)
        if caller.sees(batch.project):
            set_subject({"batch_id": batch.id})
            return batch
    raise NotFound(f"There is no batch {batch_id}.")


def get_visible_webhook(tx: Connection, caller: Principal, webhook_id: str) -> Webhook:
    """The caller's webhook. Raises NotFound, worded alike for webhooks of other projects."""
    if is_id(webhook_id, "whk"):
        webhook = get_webhook(tx, webhook_id)
        if caller.sees(webhook.project):
            return webhook
    raise NotFound(f"There is no webhook {webhook_id}.")


def get_visible_upload(tx: Connection, caller: Principal, upload_id: str) -> StoredUpload:
    """The caller's upload. Raises NotFound, worded alike for uploads of other projects."""
    if is_id(upload_id, "upl"):
        upload = get_upload(tx, upload_id)
        if caller.sees(upload.project):
            return upload
    raise NotFound(f"There is no upload {upload_id}.")


def get_visible_source(tx: Connection, caller: Principal, source_id: str) -> WatchedSource:
    """The caller's source. Raises NotFound, worded alike for sources of other projects."""
    if is_id(source_id, "src"):
        source = get_source(tx, source_id)
        if caller.sees(source.project):
            return source
    raise NotFound(f"There is no source {source_id}.")
