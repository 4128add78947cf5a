"""Shell completion of ids and names, from the server that the command would use.

If the server does not answer, there are no completions and no message, since the line is still being typed.
"""

from collections.abc import Callable, Iterable
from typing import Annotated

from cyclopts import Parameter
from cyclopts.completion import CompletionContext

from api.cli.connection import connect
from spool.client import ClientError, Retries, Spool
from spool.errors import SpoolError

Offer = tuple[str, str]
"""A completion and its description, for shells that show one."""

_LATEST = 100
_ONCE = Retries(tries=1, greetings=1)


def complete_job(context: CompletionContext) -> list[Offer]:
    """The latest jobs, by id."""
    return _offer(
        context,
        lambda spool: [(job.id, f"{job.state}, {job.name}") for job in spool.job_page(limit=_LATEST).items],
    )


def complete_batch(context: CompletionContext) -> list[Offer]:
    """The latest batches, by id."""
    return _offer(
        context,
        lambda spool: [(one.id, f"{one.state}, {one.name}") for one in spool.batch_page(limit=_LATEST).items],
    )


def complete_model(context: CompletionContext) -> list[Offer]:
    """The models that jobs may name."""
    return _offer(
        context,
        lambda spool: [
            (model.name, "the server's default" if model.default else "") for model in spool.models()
        ],
    )


JobId = Annotated[str, Parameter(name="ID", completer=complete_job, help="A job's id.")]


def _offer(context: CompletionContext, ask: Callable[[Spool], Iterable[Offer]]) -> list[Offer]:
    try:
        with connect(None, _ONCE) as spool:
            return [offer for offer in ask(spool) if offer[0].startswith(context.incomplete)]
    except (ClientError, SpoolError, OSError):
        return []
