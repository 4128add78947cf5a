"""Reading one object by addresses that somebody else signed, in a process that has no credentials.

boto3 makes its requests as ever, with ranges, conditions and retries; where they go is replaced just before
they are sent. Knows no database and no job.
"""

from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

_CHECKSUMS = "x-amz-checksum-mode"
_REFUSED = 403


class Link(Protocol):
    """Where to get addresses of the object, each valid for a while and only for GET."""

    def address(self) -> str:
        """An address that may be read now; waits for one. Raises SourceForbidden and StorageError."""

    def forget(self) -> None:
        """The store refused the last one: it may have expired by the store's clock."""


def read_by_link(client: Any, link: Link) -> None:  # noqa: ANN401 - boto3 makes its clients at run time
    """Have the (unsigned) client send its GETs to the link's addresses; one that the store refuses is asked
    for anew, once for each request."""

    def send_to_link(request: Any, **_: object) -> None:  # noqa: ANN401
        request.url = link.address()
        # A signature covers this header where it names it, and no store takes one that it does not cover.
        signed = parse_qs(urlsplit(request.url).query).get("X-Amz-SignedHeaders", [""])[0].split(";")
        del request.headers[_CHECKSUMS]
        if _CHECKSUMS in signed:
            request.headers[_CHECKSUMS] = "ENABLED"

    def ask_once_more(response: Any, attempts: int, **_: object) -> float | None:  # noqa: ANN401
        if response is None or attempts > 1 or response[0].status_code != _REFUSED:
            return None
        link.forget()
        return 0.0

    client.meta.events.register("before-send.s3.GetObject", send_to_link)
    client.meta.events.register("needs-retry.s3.GetObject", ask_once_more)
