"""What the catalogue says about each model: licence, languages, and the sources of its files, in order.

Reads and checks `models.toml`; fetches nothing, and reads no folder other than the package's own.
"""

import difflib
import re
import tomllib
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from spool.errors import ModelError, UnknownModel, first_fault

CATALOGUE_FILE = Path(__file__).with_name("models.toml")


def _relative_path(value: str) -> str:
    path = PurePosixPath(value)
    if (
        not value
        or path.is_absolute()
        or ".." in path.parts
        or "\\" in value
        or path.parts[0].startswith(".")
    ):
        raise ValueError(f"{value!r} is not a plain path below a model's folder")
    return value


RelativePath = Annotated[str, AfterValidator(_relative_path)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileHash(_Frozen):
    """The SHA-256 and the length of a file."""

    sha256: Sha256
    bytes: int = Field(ge=0)


class Member(_Frozen):
    """A file inside a package's wheel."""

    package: str
    member: str


class ModelFile(FileHash):
    """A file of an installed model: its path in the model's folder, and the members it is joined from."""

    path: RelativePath
    parts: tuple[Member, ...] = ()


class Package(FileHash):
    """One wheel on a package index, by exact version; the hash and the length are the wheel's."""

    name: Name
    version: str
    tag: str = Field("", pattern=r"^(\w+-\w+-\w+)?$")
    """The wheel's Python, ABI and platform, if it is not one for all; its data is read on any machine."""


class PackageSource(_Frozen):
    """Wheels whose members are copied out as bytes. No source distributions: pip runs their code."""

    kind: Literal["package"]
    packages: tuple[Package, ...] = Field(min_length=1)
    files: tuple[ModelFile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _parts_are_of_the_packages(self) -> "PackageSource":
        names = {package.name for package in self.packages}
        for file in self.files:
            unknown = {part.package for part in file.parts} - names
            if unknown or not file.parts:
                raise ValueError(f"{file.path} must be made of members of {', '.join(sorted(names))}")
        return self

    def describe(self) -> str:
        """The source in a few words, for records and messages."""
        return ", ".join(f"{package.name}=={package.version}" for package in self.packages)


class HubSource(_Frozen):
    """A repository on the Hugging Face hub.

    Its hashes are not in the catalogue: the store records those of the first fetch, together with the commit,
    and accepts nothing else from then on.
    """

    kind: Literal["hub"]
    id: str = Field(pattern=r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")
    revision: str = "main"
    files: tuple[str, ...] = Field(min_length=1)
    """Names or glob patterns, each of which must match."""

    def describe(self) -> str:
        """The source in a few words, for records and messages."""
        return f"the hub's {self.id}"


class RepositorySource(_Frozen):
    """A folder of Spool's own repository, used in place."""

    kind: Literal["repository"]
    folder: RelativePath
    files: tuple[ModelFile, ...] = Field(min_length=1)

    def describe(self) -> str:
        """The source in a few words, for records and messages."""
        return f"Spool's own {self.folder}"


class QuantisedSource(_Frozen):
    """Another model of the catalogue, which this machine quantises."""

    kind: Literal["quantised"]
    of: Name
    bits: int

    def describe(self) -> str:
        """The source in a few words, for records and messages."""
        return f"{self.of} with {self.bits} bits a weight"


Source = Annotated[
    PackageSource | HubSource | RepositorySource | QuantisedSource, Field(discriminator="kind")
]
QUANTISED = re.compile(r"(.+)-([84])bit")
"""The names of quantised models: whisper-base-8bit."""


class Entry(_Frozen):
    """One model of the catalogue."""

    name: Name
    family: str
    licence: str
    parameters: int = Field(gt=0)
    languages: tuple[str, ...] = ()
    tasks: tuple[Literal["transcribe", "translate", "diarize", "witness", "align"], ...] = Field(min_length=1)
    decoders: tuple[Literal["greedy", "beam", "ctc"], ...] = ()
    streams: bool = False
    """Whether live sessions can use it."""
    good_for: str
    sources: tuple[Source, ...] = Field(min_length=1)
    """In the order in which they are tried; one with wrong bytes ends the attempt."""

    @model_validator(mode="after")
    def _words_have_a_language(self) -> "Entry":
        if self.tasks != ("diarize",) and not self.languages:
            raise ValueError(f"{self.name} must name its languages")
        if not {"diarize", "align"} & {*self.tasks} and not self.decoders:
            raise ValueError(f"{self.name} must name its decoders")
        return self

    @property
    def known_bytes(self) -> int | None:
        """The length of all files of the first source that states it; None for a model on the hub only."""
        for source in self.sources:
            if isinstance(source, PackageSource | RepositorySource):
                return sum(file.bytes for file in source.files)
        return None

    @property
    def quantised(self) -> QuantisedSource | None:
        """What it is made from, for a quantised model."""
        return next((source for source in self.sources if isinstance(source, QuantisedSource)), None)

    @property
    def bundled(self) -> RepositorySource | None:
        """The folder of the repository that holds it, for a model that is not fetched."""
        return next((source for source in self.sources if isinstance(source, RepositorySource)), None)


class Catalogue(_Frozen):
    """All models that Spool can fetch by name."""

    models: tuple[Entry, ...]

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Catalogue":
        names = [entry.name for entry in self.models]
        if len(names) != len(set(names)):
            raise ValueError("a name occurs twice")
        return self

    def has(self, name: str) -> bool:
        """Whether there is an entry of this name, or one that can be quantised to it."""
        return any(entry.name == name for entry in self.models) or self.quantised(name) is not None

    def quantised(self, name: str) -> Entry | None:
        """The entry of a model with fewer bits, NAME-8bit or NAME-4bit of a NAME that transcribes."""
        match = QUANTISED.fullmatch(name)
        made_from = next((entry for entry in self.models if match and entry.name == match[1]), None)
        if match is None or made_from is None or "transcribe" not in made_from.tasks:
            return None
        source = QuantisedSource(kind="quantised", of=made_from.name, bits=int(match[2]))
        return made_from.model_copy(
            update={"name": name, "good_for": f"{source.describe()}.", "sources": (source,)}
        )

    def find(self, name: str) -> Entry:
        """The entry of that name, made up for a quantised one. Raises UnknownModel with the nearest name."""
        for entry in self.models:
            if entry.name == name:
                return entry
        if quantised := self.quantised(name):
            return quantised
        names = [entry.name for entry in self.models]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"It has {', '.join(names)}."
        raise UnknownModel(f"{name} is not in the model catalogue. {hint}")


def read_catalogue(path: Path) -> Catalogue:
    """Reads a catalogue file. Raises ModelError when it cannot be read or contradicts itself."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return Catalogue.model_validate({"models": _with_language_sets(document)})
    except (OSError, tomllib.TOMLDecodeError) as cause:
        raise ModelError(f"{path}: the model catalogue cannot be read: {cause}") from cause
    except ValidationError as error:
        raise ModelError(f"{path}: {first_fault(error)}") from None


def _with_language_sets(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The models with `languages = "name of a set"` replaced by the codes of that set."""
    sets = document.get("language_sets", {})
    return [
        {**model, "languages": sets.get(model.get("languages"), "").split()}
        if isinstance(model.get("languages"), str)
        else model
        for model in document.get("models", [])
    ]


@cache
def load_catalogue() -> Catalogue:
    """The catalogue that comes with Spool."""
    return read_catalogue(CATALOGUE_FILE)
