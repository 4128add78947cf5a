"""Who calls, and what is theirs: every look at a job or a batch goes through here.

What belongs to another project is not there for a caller: the answer is that of an id that never was. Knows
projects and scopes; how a caller became known is in `auth`.
"""

import re
from dataclasses import dataclass

from sqlalchemy import Connection

from api.middleware.log_context import concerns
from spool.domain.api_keys import Scope
from spool.domain.jobs import Job
from spool.domain.ledger import CostSums
from spool.errors import Forbidden, NotFound
from spool.ids import is_id
from spool.store.api_keys import ApiKey
from spool.store.batches import Batch, get_batch
from spool.store.jobs import get_job
from spool.store.ledger.charges import job_with_cost
from spool.store.webhooks import Webhook, get_webhook

_CLIMBS = re.compile(r"/(\.|%2e){1,2}(/|$)", re.IGNORECASE)
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever sent the request."""

    name: str
    """The id of the key; `operator` for the server's own token, `anybody` where no key is asked for."""
    project: str | None
    """None: every project."""
    scopes: frozenset[Scope]
    sources: tuple[str, ...] | None = None
    """Beginnings of addresses that may be read; None: whatever the settings allow."""

    @property
    def key_id(self) -> str | None:
        """The key, if it came with one."""
        return self.name if is_id(self.name, "key") else None

    @property
    def is_anybody(self) -> bool:
        """Whether it was let in where no key was asked for."""
        return self.name == "anybody"

    def may(self, scope: Scope | None) -> bool:
        """Whether it has the scope; None is what any caller has."""
        return scope is None or scope in self.scopes or Scope.ADMIN in self.scopes

    def sees(self, project: str) -> bool:
        """Whether what belongs to this project is there for it."""
        return self.project is None or self.project == project

    def project_for(self, asked: str | None) -> str:
        """The project of what it hands in. Raises Forbidden for another one than its own."""
        if self.project is None:
            return asked or DEFAULT_PROJECT
        if asked not in (None, self.project):
            raise Forbidden(f"This key hands in for the project {self.project} alone.")
        return self.project

    def reaches(self, uri: str) -> bool:
        """Whether its key lets it read sources there."""
        return self.sources is None or any(lies_below(uri, beginning) for beginning in self.sources)


ANYBODY = Principal("anybody", None, frozenset({Scope.ADMIN}))
OPERATOR = Principal("operator", None, frozenset({Scope.ADMIN}))


def principal_of(key: ApiKey) -> Principal:
    """Whoever bears this key."""
    return Principal(key.id, key.project, key.scopes, key.sources)


def lies_below(address: str, beginning: str) -> bool:
    """Whether an address is the other one or lies below it, part by part."""
    if address == beginning:
        return True
    if address.startswith("https://") and _CLIMBS.search(address.partition("?")[0]):
        return False  # the server that is asked may read the dots as a way up
    return address.startswith(beginning if beginning.endswith("/") else f"{beginning}/")


def get_visible_job(tx: Connection, caller: Principal, job_id: str) -> Job:
    """The caller's job. Raises NotFound, and for another project's in the same words."""
    if is_id(job_id, "job"):  # SQL is not asked about anything else
        job = get_job(tx, job_id)
        if caller.sees(job.project):
            concerns(job.ids)
            return job
    raise NotFound(f"There is no job {job_id}.")


def get_visible_job_with_cost(tx: Connection, caller: Principal, job_id: str) -> tuple[Job, CostSums]:
    """The caller's job and what it cost so far, in one statement. Raises as `get_visible_job`."""
    if is_id(job_id, "job"):
        job, cost = job_with_cost(tx, job_id)
        if caller.sees(job.project):
            concerns(job.ids)
            return job, cost
    raise NotFound(f"There is no job {job_id}.")


def get_visible_batch(tx: Connection, caller: Principal, batch_id: str) -> Batch:
    """The caller's batch. Raises NotFound, and for another project's in the same words."""
    if is_id(batch_id, "bat"):
        batch = get_batch(tx, batch_id)
        if caller.sees(batch.project):
            concerns({"batch_id": batch.id})
            return batch
    raise NotFound(f"There is no batch {batch_id}.")


def get_visible_webhook(tx: Connection, caller: Principal, webhook_id: str) -> Webhook:
    """The caller's webhook. Raises NotFound, and for another project's in the same words."""
    if is_id(webhook_id, "whk"):
        webhook = get_webhook(tx, webhook_id)
        if caller.sees(webhook.project):
            return webhook
    raise NotFound(f"There is no webhook {webhook_id}.")
