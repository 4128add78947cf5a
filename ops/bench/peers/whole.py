"""Whole commands side by side, as people run them: the same recordings and weights, words with times.

    python -m ops.bench.peers --whole [RECORDINGS…] [--family whisper|nemo] [--threads 1] [--rounds 2]

RECORDINGS: folders with a manifest.jsonl of "file" and "text" (samples/open by default). Each command runs
from the start of its process to its end, in turns; the round with the fewest processor seconds counts.
Those are of all its processes, and RTFx is audio seconds over them. Memory is the most that these processes
had resident together, sampled ten times a second. The two MLX peers read files through ffmpeg.

- whisper (`--model`, a model in CTranslate2's layout): `spool-worker transcribe`; a job through API, Redis
  and SQL (`spool submit --wait`; the stack that runs it is counted, but not its start); faster-whisper one
  window after another and in batches of 8, in float32 and int8; mlx-whisper's `transcribe`.
- nemo: `spool-worker transcribe`, and the `transcribe` of NeMo and of parakeet-mlx, over the random model
  of `ops.bench.peers`. Its words mean nothing, so there is no word error rate.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from ops.bench.peers.compare import CACHE, ROOT, THREADS, prepare
from ops.bench.peers.compare import parse as parse_engines
from ops.bench.peers.environment import peer_python
from ops.bench.peers.speech import read_samples
from ops.bench.peers.whisper.layouts import write_layouts
from spool.wer import total_errors, word_errors
from worker.audio import SAMPLE_RATE
from worker.machine.huge_pages import with_huge_pages
from worker.models.load import model_files

SAMPLED_SECONDS = 0.1
SPOOL = str(Path(sys.executable).parent / "spool")
SPOOL_WORKER = f"{SPOOL}-worker"


@dataclass(frozen=True)
class Recording:
    """A file, what is said in it, and its length in seconds."""

    path: Path
    text: str
    seconds: float


@dataclass(frozen=True)
class Measured:
    """One run of a command: seconds, bytes, and the text of each recording by the name of its file."""

    processor: float
    wall: float
    memory: int
    texts: Mapping[str, str]


def read_recordings(folders: Sequence[Path]) -> list[Recording]:
    """Everything that the manifests of these folders name."""
    found = []
    for folder in folders:
        for line in (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            path = folder / (entry.get("file") or entry["path"])
            found.append(Recording(path, entry["text"], len(read_samples(path)) / SAMPLE_RATE))
    return found


class Usage:
    """Processor seconds and memory of processes and all that they start."""

    def __init__(self, roots: Sequence[psutil.Process]) -> None:
        self._roots = roots
        self._seconds: dict[tuple[int, float], float] = {}
        self.memory = 0

    @property
    def processor(self) -> float:
        return sum(self._seconds.values())

    def sample(self) -> None:
        """Note what they have used by now. A process that has ended keeps what was last seen."""
        memory = 0
        for process in {process.pid: process for process in self._processes()}.values():
            try:
                times = process.cpu_times()
                self._seconds[process.pid, process.create_time()] = times.user + times.system
                memory += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.memory = max(self.memory, memory)

    def _processes(self) -> Iterator[psutil.Process]:
        for root in self._roots:
            try:
                yield from (root, *root.children(recursive=True))
            except psutil.NoSuchProcess:
                continue


def run_command(
    command: Sequence[str], environment: Mapping[str, str], stack: Sequence[int] = ()
) -> tuple[Measured, str]:
    """Run a command to its end -> what it took, and what it printed. stack: processes that work for it and
    go on afterwards; of these only the time since its start counts."""
    servers = Usage([psutil.Process(pid) for pid in stack])
    servers.sample()
    before = servers.processor
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, env=dict(environment), cwd=ROOT)
        own = Usage([psutil.Process(process.pid)])
        while process.poll() is None:
            own.sample()
            servers.sample()
            time.sleep(SAMPLED_SECONDS)
        wall = time.monotonic() - begun
        servers.sample()
        if process.returncode:
            raise SystemExit(f"{' '.join(map(str, command[:3]))} … ended with {process.returncode}")
        out.seek(0)
        printed = out.read()
    processor = own.processor + servers.processor - before
    return Measured(processor, wall, own.memory + servers.memory, {}), printed


class Command:
    """A command that takes files and prints a JSON object of "file" and "text" a line."""

    def __init__(
        self, name: str, arguments: Sequence[str | Path], threads: int, huge_pages: bool = False
    ) -> None:
        self.name = name
        self._arguments = [str(each) for each in arguments]
        environment = os.environ | dict.fromkeys(THREADS, str(threads))
        self._environment = with_huge_pages(environment) if huge_pages else environment

    def run(self, recordings: Sequence[Recording]) -> Measured:
        files = [str(each.path) for each in recordings]
        measured, printed = run_command([*self._arguments, *files], self._environment)
        lines = [line.removesuffix(",") for line in printed.splitlines() if line.startswith("{")]
        return replace(measured, texts={each["file"]: each["text"] for each in map(json.loads, lines)})


class SpoolJob:
    """`spool submit --wait` to a stack of one worker that is already running."""

    name = "spool, job"

    def __init__(self, model: Path, threads: int, home: Path) -> None:
        self._environment = os.environ | dict.fromkeys(THREADS, str(threads))
        self._environment |= {
            "SPOOL_HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "SPOOL_API_PORT": "0",
            "SPOOL_MODELS": f"measured={model}",
            "SPOOL_DEFAULT_MODEL": "measured",
        }

    def start(self, recordings: Sequence[Recording]) -> None:
        """Start the stack, and load the model by a first job."""
        self._spool("up", "--detach")
        self._spool("submit", "--wait", str(recordings[0].path))

    def stop(self) -> None:
        self._spool("down")

    def run(self, recordings: Sequence[Recording]) -> Measured:
        files = [str(each.path) for each in recordings]
        submit = [SPOOL, "submit", "--wait", "--again", "--json", *files]
        measured, printed = run_command(submit, self._environment, self._stack())
        texts = {}
        answer = json.loads(printed)
        for job in answer if isinstance(answer, list) else [answer]:
            texts[job["name"]] = self._spool("transcript", job["id"], "--format", "txt")
        return replace(measured, texts={path: texts[Path(path).name] for path in files})

    def _stack(self) -> list[int]:
        """The processes of the stack, of which each is counted with all that it starts."""
        home = self._environment["SPOOL_HOME"]
        return [
            p.pid
            for p in psutil.process_iter(["environ"])
            if (p.info["environ"] or {}).get("SPOOL_HOME") == home
        ]

    def _spool(self, *arguments: str) -> str:
        done = subprocess.run(
            [SPOOL, *arguments], env=self._environment, check=True, capture_output=True, text=True
        )
        return done.stdout


def whisper_commands(model: Path, cache: Path, threads: int, without: Sequence[str]) -> list[Command]:
    """Spool's command and its peers', of which each gets the weights in its own layout."""
    folders = write_layouts(model, cache / f"layouts-{model.name}")
    commands = [
        Command("spool, transcribe", [SPOOL_WORKER, "transcribe", "--model", model], threads, huge_pages=True)
    ]
    if "faster-whisper" not in without:
        script: list[str | Path] = [
            peer_python("faster-whisper", cache),
            "-m",
            "ops.bench.peers.whisper.command_faster",
            model,
        ]
        for kind in ("float32", "int8"):
            for batch in (1, 8):
                name = f"faster-whisper {kind}, {'batches of 8' if batch > 1 else 'one by one'}"
                commands.append(Command(name, [*script, kind, str(batch)], threads))
    if "mlx-whisper" not in without:
        script = [peer_python("mlx-whisper", cache), "-m", "ops.bench.peers.whisper.command_mlx"]
        commands.append(Command("mlx-whisper", [*script, folders["mlx-whisper"]], threads))
    return commands


def nemo_commands(cache: Path, threads: int, without: Sequence[str]) -> list[Command]:
    """Spool's command, NeMo's and parakeet-mlx's over the same random weights."""
    pythons, model, _ = prepare(parse_engines(["--cache", str(cache)]))
    transcribe: list[str | Path] = [SPOOL_WORKER, "transcribe", "--model", model / "mlx"]
    commands = [Command("spool, transcribe", transcribe, threads, huge_pages=True)]
    for name, folder in (("nemo", "model.nemo"), ("parakeet-mlx", "mlx")):
        if name not in without:
            script = f"ops.bench.peers.command_{name.replace('-', '_')}"
            commands.append(Command(name, [pythons[name], "-m", script, model / folder], threads))
    return commands


def table(recordings: Sequence[Recording], best: Mapping[str, Measured], spoken: bool) -> Iterator[str]:
    """A row for each command. spoken: whether the words mean something."""
    audio = sum(each.seconds for each in recordings)
    ours = next(iter(best.values())).processor
    yield f"{'':34}{'cpu s':>9}{'wall s':>9}{'RTFx':>8}{'of ours':>9}{'MB':>7}{'WER %':>8}"
    for name, each in best.items():
        wer = "…"
        if spoken:
            errors = total_errors(word_errors(r.text, each.texts[str(r.path)]) for r in recordings)
            wer = f"{100 * errors.rate:.1f}"
        speed = (
            f"{each.processor:9.1f}{each.wall:9.1f}{audio / each.processor:8.1f}{ours / each.processor:9.2f}"
        )
        yield f"{name:34}{speed}{each.memory / 1e6:7.0f}{wer:>8}"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("speech", nargs="*", type=Path, help="folders with a manifest.jsonl")
    parser.add_argument("--family", choices=["whisper", "nemo"], default="whisper")
    parser.add_argument(
        "--model", default="whisper-tiny.en", help="of the catalogue, or a folder in CTranslate2's layout"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--without", action="append", default=[], help="a peer, or `job`")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse(arguments)
    chosen.cache.mkdir(parents=True, exist_ok=True)
    recordings = read_recordings(chosen.speech or [ROOT / "samples" / "open"])
    whisper = chosen.family == "whisper"
    if whisper:
        model = model_files(chosen.model).path
        commands: list[Command | SpoolJob] = [
            *whisper_commands(model, chosen.cache, chosen.threads, chosen.without)
        ]
    else:
        commands = [*nemo_commands(chosen.cache, chosen.threads, chosen.without)]
    with tempfile.TemporaryDirectory(prefix="spool-peers-") as home, ExitStack() as stack:
        if whisper and "job" not in chosen.without:
            job = SpoolJob(model, chosen.threads, Path(home))
            stack.callback(job.stop)
            job.start(recordings)
            commands.insert(1, job)
        best: dict[str, Measured] = {}
        for turn in range(chosen.rounds):
            for command in commands:
                measured = command.run(recordings)
                known = best.get(command.name)
                best[command.name] = min((known, measured), key=lambda m: m.processor) if known else measured
                print(
                    f"round {turn + 1}: {command.name}, {measured.processor:.1f} s",
                    file=sys.stderr,
                    flush=True,
                )
    seconds = sum(each.seconds for each in recordings)
    print(f"{len(recordings)} recordings, {seconds / 60:.1f} min, {chosen.threads} threads")
    print(f"load {os.getloadavg()[0]:.1f}\n")
    print(*table(recordings, best, spoken=whisper), sep="\n")


if __name__ == "__main__":
    main()
