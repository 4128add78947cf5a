"""The routes of receipts: a job's signed receipt, and the public keys that check it.

A receipt is signed when it is first asked for, by `spool.settings.signing_key`; after that it never changes.
"""

from typing import Annotated

from fastapi import Query, Response

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_job
from api.auth.sight import SightDep
from api.openapi.document import JSON
from api.presenters.transcripts import key_of_transcript
from api.services import ServicesDep
from spool.domain.receipts import PublicKey, Receipt, Signature
from spool.errors import Forbidden
from spool.schemas.common import ListOf
from spool.settings.signing_key import signed
from spool.store.archive import receipts as store


def get_receipt(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    attempt: Annotated[int | None, Query(ge=1, description="Of this attempt, not of the last one.")] = None,
) -> Annotated[Response, Receipt]:
    """Fetch a job's receipt.

    Hashes of the recording, the models, the options, the code, each chunk and the transcript as the machine
    made it, without corrections, signed with Ed25519. A receipt never changes. Finding speakers again makes
    another transcript, with another receipt. If something of the recording is closed, the receipt could
    confirm a guess of it: it is then given only to those who may open it.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        key_of_transcript(job)
        stored = store.receipt_of(tx, job_id, attempt)
    view = sight.look_at(services.database, job)
    if view.hides:
        raise Forbidden(
            f"{view.closed.sentence} Its receipt requires opening that: `closed=true`, or --closed."
        )
    if stored.signature is None:
        signature = services.receipt_signer.sign(stored.statement.encode())
        key = services.receipt_signer.public_keys()[0]
        with services.database.begin() as tx:
            stored = store.sign_receipt(tx, job_id, stored.attempt, signature, key)
    value = Signature(key_id=stored.key_id or "", value=stored.signature or "")
    return Response(signed(stored.statement, value), media_type=JSON)


def list_keys(services: ServicesDep) -> ListOf[PublicKey]:
    """List the keys of receipts.

    The public keys with which receipts are signed or were, the one that signs first. Keep them apart from
    this server: a receipt proves as much as you trust the key.
    """
    own = services.receipt_signer.public_keys()
    with services.database.read() as tx:
        earlier = store.keys_of_receipts(tx)
    known = {key.id for key in own}
    retired = [PublicKey(id=id_, pem=pem, signs=False) for id_, pem in earlier.items() if id_ not in known]
    return ListOf(items=[*own, *retired])
