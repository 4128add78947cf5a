"""What whoever sweeps keeps up to date for the choice of jobs: what projects used of their quotas.

Knows when; the sums are in `spool.store`.
"""

from spool.settings import Settings
from spool.store.database import Database
from spool.store.quotas import refresh_use


def upkeep(db: Database, settings: Settings) -> None:
    """Bring it up to date, as far as it is time for it. Raises StorageError."""
    if settings.quotas:
        with db.begin() as tx:
            refresh_use(tx, settings.quotas)
