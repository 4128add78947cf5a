"""The routes of health: the process lives (`/healthz`), the parts it depends on answer (`/readyz`).

Both are open without a token and say nothing that a stranger could use.
"""

from fastapi import Response

from api.services import ServicesDep
from spool import __version__
from spool.schemas.fleet import Health, Readiness


def healthz() -> Health:
    """The process lives and answers."""
    return Health(version=__version__)


def readyz(services: ServicesDep, response: Response) -> Readiness:
    """Database, broker and object store, each asked now; 503 when one does not answer."""
    checks = services.probes.ask()
    ready = all(check.ok for check in checks.values())
    response.status_code = 200 if ready else 503
    return Readiness(ready=ready, checks=checks)
