"""What boto3, botocore and s3transfer raise, as Spool's errors, which name the object and no credential."""

from collections.abc import Iterator
from contextlib import contextmanager

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ParamValidationError
from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError, S3ValidationError
from urllib3.exceptions import HTTPError

from spool.errors import (
    CredentialsRefused,
    DiskFull,
    InvalidRequest,
    NotFound,
    SourceChanged,
    SourceForbidden,
    SpoolError,
    StorageError,
)

_MISSING = {"404", "NoSuchKey", "NoSuchUpload", "NotFound"}
_FORBIDDEN = {"403", "AccessDenied", "Forbidden", "AllAccessDisabled"}
_CREDENTIALS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_CHANGED = {"412", "PreconditionFailed"}
_FULL = {"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}


@contextmanager
def s3_errors(what: str) -> Iterator[None]:
    """Failures of boto3 as Spool's errors; `what` is the object or bucket in messages."""
    try:
        yield
    except ClientError as error:
        raise _explain(error, what) from error
    except ParamValidationError as error:
        raise InvalidRequest(f"{what} is not an address that S3 accepts.") from error
    except NoCredentialsError as error:
        raise CredentialsRefused(f"There are no credentials for {what}.") from error
    except S3DownloadFailedError as error:  # the transfer manager's 412
        raise SourceChanged(f"{what} has changed.") from error
    except (BotoCoreError, Boto3Error, HTTPError, S3ValidationError, RetriesExceededError) as error:
        cause = error.__context__
        raise _explain(cause, what) if isinstance(cause, ClientError) else _silent(what) from error


def _explain(error: ClientError, what: str) -> SpoolError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    if code == "NoSuchBucket":
        return NotFound(f"There is no bucket for {what}.")
    if code in _MISSING:
        return NotFound(f"There is no object {what}.")
    if code in _CHANGED:
        return SourceChanged(f"{what} has changed.")
    if code in _FORBIDDEN:
        return SourceForbidden(f"The object store refuses access to {what}.")
    if code in _CREDENTIALS:
        return CredentialsRefused(f"The object store does not take the credentials for {what} ({code}).")
    if code in _FULL:
        return DiskFull(f"The object store has no space left for {what}.")
    return StorageError(f"The object store answered {code or 'an error'} for {what}.")


def _silent(what: str) -> StorageError:
    return StorageError(f"The object store does not answer for {what}.")
