"""Every error that Spool names, as one tree.

    SpoolError
    ├── InvalidRequest      what was asked cannot be done as asked
    │   └── SettingsError   the settings contradict each other or the machine
    ├── Unauthorized        no valid key came with the request
    ├── Forbidden           the key that came is for something else
    ├── NotFound            there is no such job, model or object
    ├── Deleted             it was there, and was deleted on purpose
    ├── Conflict            the thing exists, but not in a state that allows this
    ├── SourceError         the recording cannot be fetched
    │   ├── SourceMissing   it is not there (any more)
    │   ├── SourceForbidden it lies outside what the settings allow
    │   ├── SourceChanged   it changed between submit and read
    │   └── SourceTooLarge  it has more bytes than the settings allow
    ├── AudioError          the recording was fetched and cannot be transcribed
    │   ├── AudioEmpty, AudioUnreadable, AudioTruncated, AudioNotFinite, AudioTooLong
    ├── ModelError          the model cannot be used
    │   ├── UnknownModel, ModelUnreadable, WeightsMismatch, WeightsChanged (worth a retry)
    ├── StorageError        SQL, object store or disk refused (worth a retry)
    │   └── DiskFull, ObjectDamaged
    ├── EngineError         the engine could not finish an utterance
    │   ├── EngineCrashed   this utterance ends the engine's process, also alone
    │   └── EngineStopped   the engine is shutting down (worth a retry)
    ├── TimeLimit           the job has run for longer than the settings allow
    ├── LeaseLost           another worker owns the job now
    └── JobCancelled        a person cancelled the job

`code` is stable and goes over the wire; `retryable` says whether the same call may succeed later. Messages
are for users: they name what and where, and hold no secrets. This module knows neither HTTP nor exit codes.
"""


class SpoolError(Exception):
    """Something that Spool expected could go wrong; `message` is one sentence for a user."""

    code = "internal"
    retryable = False

    def __init__(self, message: str = "") -> None:
        self.message = message or (self.__doc__ or self.code).strip().splitlines()[0]
        super().__init__(self.message)


class InvalidRequest(SpoolError):
    """The request cannot be carried out as it was made."""

    code = "invalid_request"


class SettingsError(InvalidRequest):
    """The settings contradict each other or this machine."""

    code = "settings"


class Unauthorized(SpoolError):
    """The request carries no valid key."""

    code = "unauthorized"


class Forbidden(SpoolError):
    """The key that came with the request is for something else."""

    code = "forbidden"


class NotFound(SpoolError):
    """There is no such thing."""

    code = "not_found"


class Deleted(SpoolError):
    """It was there, and was deleted on purpose."""

    code = "deleted"


class Conflict(SpoolError):
    """The state of the thing does not allow this."""

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


class SourceChanged(SourceError):
    """The recording changed while the job was waiting or running."""

    code = "source_changed"


class SourceTooLarge(SourceError):
    """The recording has more bytes than the settings allow."""

    code = "source_too_large"


class AudioError(SpoolError):
    """The recording cannot be transcribed."""

    code = "audio"


class AudioEmpty(AudioError):
    """The file holds no samples."""

    code = "audio_empty"


class AudioUnreadable(AudioError):
    """The file is not audio that can be decoded."""

    code = "audio_unreadable"


class AudioTruncated(AudioError):
    """The file ends before its own header says it does."""

    code = "audio_truncated"


class AudioNotFinite(AudioError):
    """The file holds samples that are not numbers."""

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
    """No model of this name is known here."""

    code = "unknown_model"


class ModelUnreadable(ModelError):
    """The model's files cannot be read."""

    code = "model_unreadable"


class WeightsMismatch(ModelError):
    """The weights do not fit the model's own configuration."""

    code = "weights_mismatch"


class StorageError(SpoolError):
    """A store did not answer or refused."""

    code = "storage"
    retryable = True


class ObjectDamaged(StorageError):
    """An object's bytes are not those that were written."""

    code = "object_damaged"


class DiskFull(StorageError):
    """No space is left where Spool has to write."""

    code = "disk_full"


class EngineError(SpoolError):
    """The engine could not finish an utterance."""

    code = "engine"


class EngineCrashed(EngineError):
    """This utterance ends the engine's process even when it runs alone."""

    code = "engine_crashed"


class EngineStopped(EngineError):
    """The engine is shutting down."""

    code = "engine_stopped"
    retryable = True


class TimeLimit(SpoolError):
    """The job has run for longer than the settings allow."""

    code = "time_limit"


class LeaseLost(SpoolError):
    """Another worker owns the job now."""

    code = "lease_lost"


class JobCancelled(SpoolError):
    """The job was cancelled."""

    code = "cancelled"
