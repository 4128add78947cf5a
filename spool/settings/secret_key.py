"""The key that encrypts secrets in the database: from the settings, or from a file in the home.

Webhook secrets have to be readable, because they sign; encrypted, a copy of the database alone signs nothing.
Fernet of the `cryptography` package (AES-128-CBC with HMAC-SHA256) does the work. Knows no table.
"""

import base64
import hashlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from spool.errors import SpoolError
from spool.settings.home import make_private

if TYPE_CHECKING:
    from cryptography.fernet import Fernet, MultiFernet

    from spool.settings.model import Settings

FILE = "secret-key"


class SecretUnreadable(SpoolError):
    """A secret in the database was encrypted with a key that this process does not have."""

    code = "secret_key"


class SecretBox:
    """Encrypts with the first of `keys` and decrypts with any of them. A key is any text of high entropy."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys

    def encrypt(self, text: str) -> str:
        """The text, encrypted with the first key."""
        return self._first().encrypt(text.encode()).decode("ascii")

    def decrypt(self, token: str) -> str:
        """What `encrypt` was given. Raises SecretUnreadable."""
        from cryptography.fernet import InvalidToken

        try:
            return self._all().decrypt(token).decode()
        except InvalidToken:
            raise SecretUnreadable(
                "The secret was encrypted with a key that this process does not have: set SPOOL_SECRET_KEY "
                "to the key of the processes that created it, or replace the secret."
            ) from None

    def reencrypt(self, token: str) -> str:
        """The token itself if the first key made it, else one that the first key makes. Raises
        SecretUnreadable."""
        from cryptography.fernet import InvalidToken

        try:
            self._first().decrypt(token)
        except InvalidToken:
            return self.encrypt(self.decrypt(token))
        return token

    # cryptography is imported by whoever encrypts: commands and workers start without it.

    def _first(self) -> "Fernet":
        from cryptography.fernet import Fernet

        return Fernet(_derive(self._keys[0]))

    def _all(self) -> "MultiFernet":
        from cryptography.fernet import Fernet, MultiFernet

        return MultiFernet([Fernet(_derive(key)) for key in self._keys])


def secret_box(settings: "Settings") -> SecretBox:
    """The box of these settings. Without `SPOOL_SECRET_KEY` its key is a file of the home, made once."""
    if settings.secret_key is not None:
        return SecretBox(split_keys(settings.secret_key))
    return SecretBox((key_in_home(settings.home, FILE),))


def split_keys(secret: SecretStr) -> tuple[str, ...]:
    """The keys of a setting, which commas or spaces separate."""
    return tuple(secret.get_secret_value().replace(",", " ").split())


def key_in_home(home: Path, name: str) -> str:
    """The key in this file of the home, which only this user can read. Of several processes at once, one
    makes it."""
    path = home / name
    if not path.exists():
        make_private(home)
        descriptor, made = tempfile.mkstemp(dir=home, prefix=name)  # mode 0600
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32))
                file.flush()
                os.fsync(file.fileno())
            os.link(made, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(made)
    return path.read_text(encoding="ascii").strip()


def _derive(key: str) -> bytes:
    return base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest())
