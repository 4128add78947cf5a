"""`spool-worker run`: a worker on this machine. Knows options and logging; `worker.tasks` does the work."""

from typing import Annotated, Any

import structlog
from cyclopts import Parameter
from cyclopts.validators import Number


def run(
    *,
    pool: Annotated[str | None, Parameter(help="Pool to take jobs from (SPOOL_POOL).")] = None,
    name: Annotated[str | None, Parameter(help="Name of this worker (SPOOL_WORKER_NAME).")] = None,
    concurrency: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="Number of jobs to run at once (SPOOL_CONCURRENCY)."),
    ] = None,
) -> None:
    """Take jobs from the queue. On SIGTERM, hand back running jobs and exit."""
    from spool.logs import configure_logs
    from spool.settings import load_settings, unknown_variables
    from spool.settings.home import keep_private
    from worker.service.log_file import log_into
    from worker.tasks import run_worker

    given: dict[str, Any] = {"pool": pool, "worker_name": name, "concurrency": concurrency}
    settings = load_settings(**{key: value for key, value in given.items() if value is not None})
    keep_private(settings.home)
    with log_into(settings.log_file, settings.home):
        configure_logs(settings.log_json)
        for sentence in unknown_variables():
            structlog.get_logger(__name__).warning("unknown variable", reason=sentence)
        raise SystemExit(run_worker(settings))
