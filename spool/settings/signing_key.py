"""The key that signs receipts: from the settings, or from a file in the home; and how a receipt is checked.

Ed25519 of the `cryptography` package does the work. Knows no table.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from spool.domain.receipts import ALGORITHM, PublicKey, Receipt, Signature, Statement, canonical, key_id_of
from spool.errors import InvalidRequest, SpoolError
from spool.settings.secret_key import key_in_home, split_keys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from spool.settings.model import Settings

FILE = "receipt-key"


class ReceiptInvalid(SpoolError):
    """A receipt, or what it is compared with, is not what was signed."""

    code = "receipt_invalid"


class Signer:
    """Signs with the first of `keys`; the public parts of all of them are shown. A key is any text of high
    entropy: its SHA-256 is the Ed25519 seed."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys

    @property
    def key_id(self) -> str:
        """The id of the key that signs."""
        return self.public_keys()[0].id

    def sign(self, statement: bytes) -> Signature:
        """The signature of the canonical form of a statement."""
        return Signature(key_id=self.key_id, value=_private(self._keys[0]).sign(statement).hex())

    def public_keys(self) -> list[PublicKey]:
        """The keys of the settings, the one that signs first."""
        publics = [_private(key).public_key() for key in self._keys]
        return [
            PublicKey(id=key_id_of(public.public_bytes_raw()), pem=_pem(public), signs=at == 0)
            for at, public in enumerate(publics)
        ]


def receipt_signer(settings: "Settings") -> Signer:
    """The signer of these settings. Without `SPOOL_RECEIPT_KEY` its key is a file of the home, made once."""
    if settings.receipt_key is not None:
        return Signer(split_keys(settings.receipt_key))
    return Signer((key_in_home(settings.home, FILE),))


def signed(statement: str, signature: Signature) -> bytes:
    """The file of a receipt whose statement was stored in its canonical form."""
    return canonical({"statement": json.loads(statement), "signature": signature.model_dump()}) + b"\n"


def check_receipt(file: bytes, keys: Iterable[bytes]) -> Receipt:
    """The receipt of this file, once its signature was checked. keys: files with public keys in PEM, one of
    which has to be the one that signed. Raises ReceiptInvalid, and InvalidRequest for what is no key."""
    from cryptography.exceptions import InvalidSignature

    try:
        document = json.loads(file)
        receipt = Receipt.model_validate(document)
    except (ValueError, RecursionError) as error:
        raise ReceiptInvalid(f"The file is not a receipt: {_first_line(error)}.") from None
    if canonical(document) + b"\n" != file:
        raise ReceiptInvalid("The file is not the canonical form of its receipt (RFC 8785): it was changed.")
    known = {key_id_of(key.public_bytes_raw()): key for data in keys for key in _read_public(data)}
    public = known.get(receipt.signature.key_id)
    if public is None:
        listed = ", ".join(sorted(known))
        raise ReceiptInvalid(
            f"The receipt was signed with key {receipt.signature.key_id}, not with {listed}."
        )
    try:
        public.verify(bytes.fromhex(receipt.signature.value), canonical(document["statement"]))
    except InvalidSignature:
        raise ReceiptInvalid("The signature does not fit: the receipt was changed.") from None
    return receipt


def check_audio(statement: Statement, path: Path) -> None:
    """Raise ReceiptInvalid unless the file is the recording of the receipt."""
    if statement.audio_sha256 is None:
        raise ReceiptInvalid("The receipt does not say which recording it is of.")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    _refuse_other(f"{path}: the recording", statement.audio_sha256, found)


def check_transcript(statement: Statement, path: Path) -> dict[str, Any]:
    """The stored record in this file. Raises ReceiptInvalid unless it is that of the receipt."""
    data = path.read_bytes()
    _refuse_other(f"{path}: the transcript", statement.transcript_sha256, hashlib.sha256(data).hexdigest())
    record: dict[str, Any] = json.loads(data)
    check_options(statement, record["options"])
    return record


def check_options(statement: Statement, options: object) -> None:
    """Raise ReceiptInvalid unless these are the options of the receipt."""
    _refuse_other("The options", statement.options_sha256, hashlib.sha256(canonical(options)).hexdigest())


def _refuse_other(what: str, expected: str, found: str) -> None:
    if found != expected:
        raise ReceiptInvalid(f"{what}: SHA-256 is {found}, and {expected} in the receipt.")


def _private(key: str) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(key.encode()).digest())


def _pem(key: "Ed25519PublicKey") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")


_END = b"-----END PUBLIC KEY-----"


def _read_public(data: bytes) -> list["Ed25519PublicKey"]:
    """The keys of a PEM file. Raises InvalidRequest."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    keys = []
    for part in data.split(_END)[:-1]:
        try:
            key = load_pem_public_key(part + _END + b"\n")
        except ValueError as error:
            raise InvalidRequest(f"The key is not readable: {_first_line(error)}.") from None
        if not isinstance(key, Ed25519PublicKey):
            raise InvalidRequest(f"The key is not an {ALGORITHM} key.")
        keys.append(key)
    if not keys:
        raise InvalidRequest("The key is not a public key in PEM (BEGIN PUBLIC KEY).")
    return keys


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
