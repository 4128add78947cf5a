"""An existing transcript to align with its recording: as a submitter sends it, and as a job stores it.

Pure. `typescripts` reads files; `spool.store.archive.typescripts` stores the words.
"""

import base64
import binascii
import hashlib
import json
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from spool.domain.archive.typescripts import (
    MAX_TYPESCRIPT_BYTES,
    MOST_WORDS,
    SpokenWord,
    check_words,
    read_typescript,
)
from spool.errors import InvalidRequest

_BASE64 = 2 * MAX_TYPESCRIPT_BYTES * 4 // 3  # so that a file that is too long is reported in bytes


@dataclass(frozen=True)
class Typescript:
    """The words of an existing transcript, in order."""

    words: tuple[SpokenWord, ...]

    @cached_property
    def sha256(self) -> str:
        """Of the words and their speakers (hex)."""
        return hashlib.sha256(self._document).hexdigest()

    @property
    def names_speakers(self) -> bool:
        """Whether it names the speaker of any word."""
        return any(word.speaker is not None for word in self.words)

    @property
    def texts(self) -> tuple[str, ...]:
        """The words without their speakers."""
        return tuple(word.text for word in self.words)

    @cached_property
    def _document(self) -> bytes:
        pairs = [[word.text, word.speaker] for word in self.words]
        return json.dumps(pairs, ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def kept(self) -> "KeptAlign":
        """The form in which a job stores it."""
        return KeptAlign(words=len(self.words), sha256=self.sha256)

    def pack(self) -> bytes:
        """As bytes, compressed."""
        return zlib.compress(self._document)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The text that `pack` returned."""
        return cls(tuple(SpokenWord(*pair) for pair in json.loads(zlib.decompress(data))))


class KeptAlign(BaseModel):
    """The text that a job aligns, as its options store it: the words are stored separately."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    words: Annotated[int, Field(description="How many words it has.")]
    sha256: Annotated[str, Field(description="Of the words and their speakers.")]


class Align(BaseModel):
    """An existing transcript to align with the recording, in one of three forms."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    text: Annotated[
        str | None,
        Field(max_length=MAX_TYPESCRIPT_BYTES, description="Its text: plain, SubRip or WebVTT."),
    ] = None
    data: Annotated[
        str | None,
        Field(
            max_length=_BASE64,
            description="A file of up to 10 MiB in base64: a text in UTF-8, SRT, WebVTT or Word (.docx).",
        ),
    ] = None
    words: Annotated[
        tuple[tuple[str, str | None], ...] | None,
        Field(max_length=MOST_WORDS, description="Its words one by one, each with who says it, or null."),
    ] = None
    name: Annotated[str, Field(max_length=200, description="Its name in error messages.")] = "transcript"
    _typescript: Typescript = PrivateAttr()

    @model_validator(mode="after")
    def _is_read(self) -> Self:
        forms = [form for form in (self.text, self.data, self.words) if form is not None]
        if len(forms) != 1:
            raise ValueError("send one of text, data and words")
        try:
            self._typescript = Typescript(self._read())
        except InvalidRequest as error:
            raise ValueError(error.message) from None
        return self

    def _read(self) -> tuple[SpokenWord, ...]:
        if self.words is not None:
            pairs = ((text.split(), speaker) for text, speaker in self.words)
            words = tuple(SpokenWord(part, speaker or None) for parts, speaker in pairs for part in parts)
            return check_words(words, self.name)
        if self.text is not None:
            return read_typescript(self.text.encode(), self.name)
        try:
            return read_typescript(base64.b64decode(self.data or "", validate=True), self.name)
        except binascii.Error as error:
            raise InvalidRequest(f"{self.name}: data is not base64: {error}") from None

    @classmethod
    def of(cls, typescript: Typescript) -> Self:
        """The request for a text that was read before."""
        return cls(words=tuple((word.text, word.speaker) for word in typescript.words))

    @property
    def typescript(self) -> Typescript:
        """The words of the text."""
        return self._typescript

    @property
    def kept(self) -> KeptAlign:
        """The form in which a job stores it."""
        return self._typescript.kept


WITH_ALIGN = frozenset({"model", "on_truncated", "diarization", "align"})
"""The options that can be combined with alignment."""


class KeepsAlignment(BaseModel):
    """The part of a job's options about alignment."""

    model_config = ConfigDict(defer_build=True)

    align: Annotated[
        KeptAlign | None,
        Field(
            exclude_if=lambda value: value is None,
            description="The existing transcript that is aligned with the recording.",
        ),
    ] = None


class AsksAlignment(BaseModel):
    """The part of a request's options about alignment. Any option of a search is refused by name if combined
    with it."""

    align: Annotated[
        Align | None,
        Field(
            description="An existing transcript: its words get their times, and none is recognised. Needs a "
            "model with a CTC head; only `model`, `on_truncated` and `diarization` can be combined with it."
        ),
    ] = None

    @model_validator(mode="after")
    def _is_aligned_only(self) -> Self:
        if self.align is None:
            return self
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            # The detector listens by default; the text's words do not need it.
            is_asked = value != field.default
            if name == "speech_detector":
                is_asked = value and name in self.model_fields_set
            if is_asked and name not in WITH_ALIGN:
                raise ValueError(f"{name}: an existing transcript is aligned, not recognised; leave it out")
        if getattr(self, "diarization", None) is not None and self.align.typescript.names_speakers:
            raise ValueError("diarization: the existing transcript names its speakers; leave it out")
        return self

    @property
    def typescript(self) -> Typescript | None:
        """The existing transcript to align."""
        return None if self.align is None else self.align.typescript
