"""The errors of jobs, requests and machines, as one tree.

`code` is stable and part of the API; `retryable` says whether the same call may succeed later. Messages are
for users: they say what and where, and hold no secrets. HTTP statuses and exit codes are for the callers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

_UNKNOWN_FIELD = "extra_forbidden"


class SpoolError(Exception):
    """An error that Spool foresees; `message` is one sentence for a user."""

    code = "internal"
    retryable = False

    def __init__(self, message: str = "") -> None:
        self.message = message or (self.__doc__ or self.code).strip().splitlines()[0]
        super().__init__(self.message)


class InvalidRequest(SpoolError):
    """The request is not valid."""

    code = "invalid_request"


class SettingsError(InvalidRequest):
    """The settings contradict each other or this machine."""

    code = "settings"


class Unauthorized(SpoolError):
    """The request has no valid API key."""

    code = "unauthorized"


class Forbidden(SpoolError):
    """The API key does not allow this."""

    code = "forbidden"


class NotFound(SpoolError):
    """There is no such resource."""

    code = "not_found"


class Deleted(SpoolError):
    """The resource was deleted."""

    code = "deleted"


class Conflict(SpoolError):
    """The resource's present state does not allow this."""

    code = "conflict"


class SourceError(SpoolError):
    """The recording cannot be fetched."""

    code = "source"


class SourceMissing(SourceError):
    """The recording is not where the job says it is."""

    code = "source_missing"


class SourceForbidden(SourceError):
    """The settings do not allow this source."""

    code = "source_forbidden"


class SourceUnreachable(SourceError):
    """This worker cannot reach the folder that the recording lies in."""

    code = "source_unreachable"


class ShareMissing(SourceUnreachable):
    """A source root of this worker is missing, empty or no longer mounted."""

    def __init__(self, message: str = "", root: Path | None = None) -> None:
        super().__init__(message)
        self.root = root


class ShareForbidden(SourceUnreachable):
    """The settings of this worker do not allow the folder that the recording lies in."""


class FolderMissing(SourceUnreachable):
    """The root is there, but this worker does not see the folder that the recording lies in, or sees it
    empty."""


class SourceChanged(SourceError):
    """The recording changed after the job was submitted; submit it again."""

    code = "source_changed"


class SourceTooLarge(SourceError):
    """The recording has more bytes than the settings allow."""

    code = "source_too_large"


class AudioError(SpoolError):
    """The recording cannot be transcribed."""

    code = "audio"


class AudioEmpty(AudioError):
    """The file contains no audio."""

    code = "audio_empty"


class AudioUnreadable(AudioError):
    """The file is not audio that can be decoded."""

    code = "audio_unreadable"


class AudioTruncated(AudioError):
    """The file is shorter than its header states."""

    code = "audio_truncated"


class AudioNotFinite(AudioError):
    """The file contains samples that are not finite numbers."""

    code = "audio_not_finite"


class AudioTooLong(AudioError):
    """The recording is longer than the settings allow."""

    code = "audio_too_long"


class ModelError(SpoolError):
    """The model cannot be used."""

    code = "model"


class ModelUnavailable(ModelError):
    """The model is not on this machine, and no source that has it can be reached."""

    code = "model_unavailable"
    retryable = True


class ChecksumMismatch(ModelError):
    """The bytes of a model are not those of the catalogue."""

    code = "checksum_mismatch"


class WeightsChanged(ModelError):
    """The model's or the language model's files changed while the job ran."""

    code = "weights_changed"
    retryable = True


class UnknownModel(ModelError):
    """There is no model of this name."""

    code = "unknown_model"


class ModelUnreadable(ModelError):
    """The model's files cannot be read."""

    code = "model_unreadable"


class QualityUnknown(ModelError):
    """The model's weights are quantised, and their quality was not measured on this machine or is too low."""

    code = "quality_unknown"


class WeightsMismatch(ModelError):
    """The weights do not match the model's configuration."""

    code = "weights_mismatch"


class StorageError(SpoolError):
    """A database, object store or broker does not answer."""

    code = "storage"
    retryable = True


class ObjectDamaged(StorageError):
    """An object's bytes are not those that were written."""

    code = "object_damaged"


class CredentialsRefused(StorageError):
    """There is no key for an object store, the store does not know it, or its secret is wrong."""


class OutputMissing(StorageError):
    """The folder that transcripts are written below is not there."""


class DiskFull(StorageError):
    """The disk is full."""

    code = "disk_full"


class EngineError(SpoolError):
    """The engine could not finish an utterance."""

    code = "engine"


class EngineCrashed(EngineError):
    """This utterance crashes the engine even when it runs alone."""

    code = "engine_crashed"


class StateLost(EngineError):
    """The engine no longer has this live session's state."""

    code = "state_lost"
    retryable = True


class EngineFull(EngineError):
    """The engine cannot keep up with another live session now."""

    code = "engine_full"
    retryable = True


class EngineStopped(EngineError):
    """The engine is shutting down."""

    code = "engine_stopped"
    retryable = True


class TimeLimit(SpoolError):
    """The job has run for longer than the settings allow."""

    code = "time_limit"


class LeaseLost(SpoolError):
    """Another worker has the job now."""

    code = "lease_lost"


class JobCancelled(SpoolError):
    """The job was cancelled."""

    code = "cancelled"


def first_fault(error: "ValidationError", *prefix: str) -> str:
    """The first fault of a validation as `where: what`, without the value: it may be a secret. A field with
    an unknown name comes before all others, since it may be why one is missing."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    fault = min(faults, key=lambda each: each["type"] != _UNKNOWN_FIELD)
    where = ".".join(map(str, (*prefix, *fault["loc"])))
    message = fault_message(fault)
    return f"{where}: {message}" if where else message


def fault_message(fault: Mapping[str, Any]) -> str:
    """What is wrong, of one of the faults that Pydantic lists."""
    if fault.get("type") == _UNKNOWN_FIELD:
        return "there is no such field"
    return str(fault["msg"]).removeprefix("Value error, ")


def describe_code(code: str) -> str:
    """What errors of this code say of themselves, as one sentence; the code itself where none has it."""
    return _SENTENCES.get(code, code)


def job_codes() -> list[str]:
    """The codes that a job can fail with, apart from `poison`."""
    of_jobs = (InvalidRequest, SourceError, AudioError, ModelError, StorageError, EngineError, TimeLimit)
    return sorted({SpoolError.code, *(each.code for kind in of_jobs for each in _kinds(kind))})


def retryable_codes() -> list[str]:
    """The codes of errors that are worth a retry."""
    return sorted({kind.code for kind in _kinds(SpoolError) if kind.retryable})


def _kinds(kind: type[SpoolError]) -> list[type[SpoolError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _kinds(below))]


_SENTENCES = {kind.code: kind().message for kind in reversed(_kinds(SpoolError))}  # the general one counts
