"""Reads sources in other parties' buckets with a named connection of the request's project.

A job stores the connection's name. The server lists with the secret; workers get signed addresses
(`spool.background.source_signer`).
"""

from dataclasses import dataclass, replace

from api.services import Services
from spool.domain.jobs import Source
from spool.errors import InvalidRequest, NotFound
from spool.objects import ObjectStore, s3_store
from spool.settings import Settings
from spool.settings.secret_key import SecretBox
from spool.store.archive.connections import get_connection
from spool.tables.exports import ConnectionRow


@dataclass(frozen=True, slots=True)
class S3Access:
    """How `s3://` addresses of a request are read: with the server's credentials, or with a connection."""

    settings: Settings
    box: SecretBox
    connection: ConnectionRow | None = None

    @property
    def name(self) -> str | None:
        """The connection's name."""
        return None if self.connection is None else self.connection.name

    def check(self, uri: str) -> None:
        """Raise SourceForbidden if the connection may not read `uri`."""
        if self.connection is not None:
            self.connection.check_read(uri)

    def apply(self, source: Source) -> Source:
        """The source; an S3 source names the connection. Raises SourceForbidden."""
        if self.connection is None or source.kind != "s3":
            return source
        self.check(source.uri)
        return replace(source, connection=self.name)

    def store(self, bucket: str, prefix: str = "") -> ObjectStore:
        """The bucket's store. Raises SecretUnreadable."""
        if self.connection is None:
            return s3_store(self.settings, bucket, prefix)
        from spool.objects.connections import options_of
        from spool.objects.s3 import open_bucket

        return open_bucket(bucket, prefix, options_of(self.connection, self.settings, self.box))


def s3_access_of(
    services: Services, project: str, connection: str | None, address: str = "s3://"
) -> S3Access:
    """How a request of the project reads the source at `address`. Raises InvalidRequest for an unknown
    connection, and for a connection with a source that is not on S3."""
    row = None
    if connection is not None and not address.lower().startswith("s3://"):
        raise InvalidRequest("connection: it reads s3:// sources only.")
    if connection is not None:
        try:
            with services.database.look() as tx:
                row = get_connection(tx, project, connection)
        except NotFound as error:
            raise InvalidRequest(f"connection: {error.message}") from None
    return S3Access(services.settings, services.secret_box, row)
