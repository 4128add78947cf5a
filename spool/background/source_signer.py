"""Signs addresses of sources for workers, with connections whose secrets workers cannot read.

Every API process does it: signing needs no server, and signing the same address twice is harmless. An address
is valid for one object and a quarter of an hour; a long read requests another. A removed connection signs no
more.
"""

import structlog

from spool.background.thread import BackgroundLoop
from spool.errors import NotFound, SourceForbidden
from spool.settings import Settings
from spool.settings.secret_key import SecretBox, SecretUnreadable
from spool.store import Database
from spool.store.archive.connections import (
    ASKED_SECONDS,
    AskedLink,
    answer_link,
    drop_old_links,
    get_connection,
    list_asked_links,
)
from spool.tables.exports import ConnectionRow

LOOK_S = 0.5
VALID_SECONDS = 900
AT_ONCE = 200

log = structlog.get_logger(__name__)


class SourceSigner(BackgroundLoop):
    """Answers workers until stopped."""

    def __init__(self, db: Database, settings: Settings, box: SecretBox) -> None:
        super().__init__("spool-signer")
        self._db, self._settings, self._box = db, settings, box

    def run_once(self) -> float:
        """Sign the requested addresses; return the seconds until the next round."""
        with self._db.look() as tx:
            asked, is_old = list_asked_links(tx, AT_ONCE)
        if is_old:
            with self._db.begin() as tx:
                drop_old_links(tx)
        answers = [(each.job_id, *self._answer(each)) for each in asked]
        given = [answer for answer in answers if answer[1:] != (None, None)]
        if given:
            with self._db.begin() as tx:
                for job_id, url, error in given:
                    seconds = ASKED_SECONDS if url is None else VALID_SECONDS
                    answer_link(tx, job_id, url, seconds, error)
        return LOOK_S

    def _answer(self, asked: AskedLink) -> tuple[str | None, str | None]:
        """The address or why there is none; neither if another process may have the key."""
        uri, name = asked.source.uri, asked.source.connection or ""
        try:
            with self._db.look() as tx:
                row = get_connection(tx, asked.project, name)
            row.check_read(uri)
            return self._sign(row, uri), None
        except (NotFound, SourceForbidden) as error:
            return None, error.message
        except SecretUnreadable as error:
            log.warning("an address cannot be signed", connection=name, reason=error.message)
            return None, None

    def _sign(self, row: ConnectionRow, uri: str) -> str:
        from spool.objects.connections import options_of  # boto3 takes a tenth of a second
        from spool.objects.s3 import open_bucket

        bucket, _, key = uri.removeprefix("s3://").partition("/")
        store = open_bucket(bucket, "", options_of(row, self._settings, self._box))
        return store.sign_address(key, VALID_SECONDS)
