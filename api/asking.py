"""What requests for jobs and for batches have in common: how they are told apart, and past deadlines."""

from datetime import UTC, datetime
from typing import Any

from api.problems import refused_fields
from spool.wire.batches import BatchUploadRequest
from spool.wire.jobs import UploadRequest

_LATER = {"priority": "normal", "deadline": None}


def asked_words(asked: UploadRequest | BatchUploadRequest, project: str) -> dict[str, Any]:
    """What was asked, for its hash. Fields that came later are left out where nothing was said of them, so
    that a repeat of an earlier request stays one."""
    told = asked.model_dump(mode="json") | {"project": project}
    return {name: value for name, value in told.items() if name not in _LATER or value != _LATER[name]}


def refuse_past(deadline: datetime | None) -> None:
    """Raise `Problem` for a deadline that nothing can make."""
    if deadline is not None and deadline <= datetime.now(UTC):
        raise refused_fields([{"loc": ("deadline",), "msg": "lies in the past"}])
