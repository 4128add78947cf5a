"""The routes of health: the process is alive (`/healthz`), the parts it depends on answer (`/readyz`).

Both need no key and reveal nothing that a stranger could use.
"""

from fastapi import Response

from api.services import ServicesDep
from spool import __version__
from spool.schemas.fleet import Health, Readiness


def healthz(services: ServicesDep, response: Response) -> Health:
    """Check liveness.

    The process is alive. Warnings come from the last reading: no query is made.
    """
    if services.stopping.is_set():
        response.status_code = 503
        return Health(status="stopping", version=__version__)
    state = services.fleet.latest
    jobs = sum(each.jobs for each in state.unserved) if state else 0
    plural = "s wait" if jobs > 1 else " waits"
    detail = [f"{jobs} job{plural} for a worker that can take them; see `spool status`."]
    return Health(version=__version__, detail=detail if jobs else [])


def readyz(services: ServicesDep, response: Response) -> Readiness:
    """Check readiness.

    Check database, broker and object store now; 503 if one does not answer.
    """
    checks = services.probes.ask()
    ready = all(check.ok for check in checks.values())
    response.status_code = 200 if ready else 503
    return Readiness(ready=ready, checks=checks)
