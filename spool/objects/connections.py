"""How to reach somebody else's bucket by a named connection, in a process that has the key of the secrets."""

from pydantic import SecretStr

from spool.objects.s3_client import S3Options
from spool.settings import Settings
from spool.settings.secret_key import SecretBox
from spool.tables.exports import ConnectionRow


def options_of(row: ConnectionRow, settings: Settings, box: SecretBox) -> S3Options:
    """How to reach the connection's store. Raises SecretUnreadable."""
    secret = SecretStr(box.decrypt(row.secret))
    return S3Options(row.endpoint, row.region, SecretStr(row.key_id), secret, checksums=settings.s3_checksums)
