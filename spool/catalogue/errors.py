"""What can go wrong between a model's name and its files on disk. Knows no source and no store."""

from spool.errors import ModelError


class ModelUnavailable(ModelError):
    """The model is not on this machine, and no source can be reached that has it."""

    code = "model_unavailable"
    retryable = True


class ChecksumMismatch(ModelError):
    """The bytes of a model are not those of the catalogue."""

    code = "checksum_mismatch"
