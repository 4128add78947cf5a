"""Objects that others send to a bucket in parts: S3's multipart uploads, by presigned addresses.

The addresses are signed for the endpoint that others reach (`public_endpoint_url`), each for one part of one
upload and so many bytes. No checksums of boto3's own: they would become part of the signature.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from spool.objects.base import PartInfo, UnfinishedObject, check_key
from spool.objects.s3_client import S3Options, client_of
from spool.objects.s3_errors import s3_errors

_PAGE = 1000


class S3Receiver:
    """A `Receiver` of a bucket. Safe to share between threads."""

    def __init__(self, bucket: str, prefix: str, options: S3Options) -> None:
        """`prefix`: what all keys start with, including a final slash."""
        self._bucket = bucket
        self._prefix = prefix
        self._options = replace(options, checksums=False)

    def begin(self, key: str, content_type: str) -> str:
        """The id of a new upload in parts."""
        answer = self._call("create_multipart_upload", check_key(key), ContentType=content_type)
        return str(answer["UploadId"])

    def address(self, key: str, upload: str, number: int, size: int, seconds: int) -> str:
        """Where the part is to be PUT, for so many seconds."""
        parameters = {
            "Bucket": self._bucket,
            "Key": self._prefix + key,
            "UploadId": upload,
            "PartNumber": number,
            "ContentLength": size,
        }
        with s3_errors(self._name(key)):
            url: str = self._public_client.generate_presigned_url(
                "upload_part", parameters, ExpiresIn=seconds
            )
        return url

    def parts(self, key: str, upload: str, after: int = 0, limit: int | None = None) -> Iterator[PartInfo]:
        """The parts that arrived, by number."""
        while limit is None or limit > 0:
            most = _PAGE if limit is None else min(limit, _PAGE)
            answer = self._call("list_parts", key, UploadId=upload, PartNumberMarker=after, MaxParts=most)
            page = answer.get("Parts", ())
            for part in page:
                yield PartInfo(part["PartNumber"], part["Size"], part["ETag"])
            if not answer.get("IsTruncated") or not page:
                return
            after = page[-1]["PartNumber"]
            limit = None if limit is None else limit - len(page)

    def join(self, key: str, upload: str, parts: Sequence[PartInfo]) -> None:
        """Make the object of its parts."""
        named = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
        self._call("complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": named})

    def abort(self, key: str, upload: str) -> None:
        """Drop the upload with its parts."""
        self._call("abort_multipart_upload", key, UploadId=upload)

    def list_unfinished(self, prefix: str) -> Iterator[UnfinishedObject]:
        """Every upload below `prefix` that was begun and neither joined nor dropped."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        with s3_errors(self._name(prefix)):
            for page in pages:
                for item in page.get("Uploads", ()):
                    key = item["Key"].removeprefix(self._prefix)
                    yield UnfinishedObject(key, item["UploadId"], item["Initiated"])

    def _call(self, operation: str, key: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - boto3's own
        with s3_errors(self._name(key)):
            method: Callable[..., dict[str, Any]] = getattr(self._client, operation)
            return method(Bucket=self._bucket, Key=self._prefix + key, **parameters)

    def _name(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - boto3 makes its clients at run time
        return client_of(self._options, self._options.endpoint_url)

    @cached_property
    def _public_client(self) -> Any:  # noqa: ANN401
        return client_of(self._options, self._options.public_endpoint_url, signature_version="s3v4")
