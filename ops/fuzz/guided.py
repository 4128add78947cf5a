"""Fuzzes the readers towards code that has not run yet: `python -m ops.fuzz.guided arpa --seconds 600`.

Needs `pip install atheris` (libFuzzer inside; Linux), which is not a dependency of Spool. It follows the
coverage of our own Python: the readers of headers, manifests, language models and checkpoints. The C of
libsndfile, FFmpeg and MLX is not instrumented but gets the same files. Half of the mutations are libFuzzer's,
half those of `ops.fuzz.mutation`, which knows the structure of containers.

`ops.fuzz.run` says what a good answer is; anything else stops the run, and libFuzzer keeps the file under
`--keep`. Runs one target in one process; its corpus is kept between runs under `--corpus`.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ops.fuzz.mutation import Seed, damaged

SMALL = 1 << 16
MEMORY_MIB = 3000
SILENT_S = 60
Reading = Callable[[bytes], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--corpus", type=Path, default=Path("var/fuzz/corpus"))
    parser.add_argument("--keep", type=Path, default=Path("var/fuzz"))
    arguments = parser.parse_args()
    import atheris

    with atheris.instrument_imports(include=["worker", "spool"]), tempfile.TemporaryDirectory() as scratch:
        seeds, read = TARGETS[arguments.target](Path(scratch))
        corpus = arguments.corpus / arguments.target
        corpus.mkdir(parents=True, exist_ok=True)
        arguments.keep.mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            (corpus / f"seed-{seed.name}").write_bytes(seed.content)

        def mutate(data: bytes, most: int, number: int) -> bytes:
            if number % 2:
                return bytes(atheris.Mutate(data, most))
            return damaged(data, seeds, number)[:most]

        options = [
            f"-max_total_time={arguments.seconds}",
            f"-rss_limit_mb={MEMORY_MIB}",
            f"-timeout={SILENT_S}",
        ]
        options += [f"-artifact_prefix={arguments.keep / arguments.target}-", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, str(corpus)], _checked(read), custom_mutator=mutate)
        atheris.Fuzz()


def _checked(read: Reading) -> Reading:
    from spool.errors import SpoolError

    def check(data: bytes) -> None:
        try:
            read(data)
        except SpoolError as error:
            if error.retryable:
                raise RuntimeError("it asks for a retry") from error

    return check


def _by_path(name: str, folder: Path, read: Callable[[Path], None]) -> Reading:
    path = folder / name

    def write_and_read(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return write_and_read


def _audio(folder: Path) -> tuple[list[Seed], Reading]:
    from ops.fuzz.targets import read_recording, recordings

    (folder / "seeds").mkdir()
    small = [seed for seed in recordings(folder / "seeds") if len(seed.content) <= SMALL]
    return small, _by_path("a", folder, read_recording)


def _manifest(folder: Path) -> tuple[list[Seed], Reading]:
    from ops.fuzz.targets import manifests, read_manifest

    return manifests(folder), _by_path("read.jsonl", folder, read_manifest)


def _arpa(folder: Path) -> tuple[list[Seed], Reading]:
    from ops.fuzz.targets import language_models, read_language_model

    return language_models(folder), _by_path("read.arpa", folder, read_language_model)


def _config(_folder: Path) -> tuple[list[Seed], Reading]:
    from ops.fuzz.targets import ROOT
    from worker.models.nemo.config import parse_config

    seeds = [Seed.of(path) for path in sorted((ROOT / "tests" / "golden").glob("*/config.json"))]
    yaml = Seed("short.yaml", b"preprocessor: {sample_rate: 16000, features: 80}\nencoder: &a [1, *a]\n")
    return [*seeds, yaml], lambda data: _ignore(parse_config(data, "config"))


def _nemo(folder: Path) -> tuple[list[Seed], Reading]:
    from ops.fuzz.targets import read_archive, small_archives

    return small_archives(folder), _by_path("read.nemo", folder, read_archive)


def _safetensors(folder: Path) -> tuple[list[Seed], Reading]:
    from ops.fuzz.targets import read_safetensors, small_safetensors

    return small_safetensors(folder), _by_path("model.safetensors", folder, read_safetensors)


def _ignore(_result: object) -> None:
    """The reading is what counts."""


TARGETS: dict[str, Callable[[Path], tuple[list[Seed], Reading]]] = {
    "arpa": _arpa,
    "audio": _audio,
    "config": _config,
    "manifest": _manifest,
    "nemo": _nemo,
    "safetensors": _safetensors,
}

if __name__ == "__main__":
    main()
