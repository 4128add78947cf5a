"""Objects that others send to a bucket in parts: S3's multipart uploads, by presigned addresses.

The addresses are signed for the endpoint that others reach (`public_endpoint_url`), each for one part of one
upload and so many bytes. No checksums of boto3's own: they would become part of the signature.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from spool.objects.base import PartInfo, UnfinishedObject, check_key
from spool.objects.s3_client import S3Bucket, S3Options

_PAGE = 1000


class S3Receiver(S3Bucket):
    """A `Receiver` of a bucket. Safe to share between threads."""

    def __init__(self, bucket: str, prefix: str, options: S3Options) -> None:
        """`prefix`: what all keys start with."""
        super().__init__(bucket, prefix, replace(options, checksums=False))

    def begin(self, key: str, content_type: str) -> str:
        """The id of a new upload in parts."""
        answer = self.call("create_multipart_upload", check_key(key), ContentType=content_type)
        return str(answer["UploadId"])

    def address(self, key: str, upload: str, number: int, size: int, seconds: int) -> str:
        """Where the part is to be PUT, for so many seconds."""
        own = {"UploadId": upload, "PartNumber": number, "ContentLength": size}
        return self.sign(self.public_client, "upload_part", key, seconds, **own)

    def parts(self, key: str, upload: str, after: int = 0, limit: int | None = None) -> Iterator[PartInfo]:
        """The parts that arrived, by number."""
        while limit is None or limit > 0:
            most = _PAGE if limit is None else min(limit, _PAGE)
            answer = self.call("list_parts", key, UploadId=upload, PartNumberMarker=after, MaxParts=most)
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
        self.call("complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": named})

    def abort(self, key: str, upload: str) -> None:
        """Drop the upload with its parts."""
        self.call("abort_multipart_upload", key, UploadId=upload)

    def list_unfinished(self, prefix: str) -> Iterator[UnfinishedObject]:
        """Every upload below `prefix` that was begun and neither joined nor dropped."""
        for page in self.pages("list_multipart_uploads", prefix):
            for item in page.get("Uploads", ()):
                key = item["Key"].removeprefix(self.prefix)
                yield UnfinishedObject(key, item["UploadId"], item["Initiated"])
