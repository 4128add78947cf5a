"""`spool-worker confirm --quality`: compares a fixed set of recordings, transcribed with this machine's
device and precision, with the words of the same model in float32 on its CPU.
`worker.local.listen` transcribes."""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from spool import clock
from spool.catalogue import load_catalogue, open_store
from spool.domain.fleet.quality import Quality
from spool.errors import InvalidRequest
from spool.settings import load_settings
from spool.wer import WordErrors, word_errors
from worker.diagnostics.confirm.report import StepOutcome

ROOT = Path(__file__).resolve().parents[3]
RECORDINGS = ROOT / "samples" / "open"
LISTEN_SECONDS = 3600


def spoken_words(folder: Path = RECORDINGS) -> dict[str, str]:
    """The true words of each recording of the set, by file. Raises InvalidRequest if the set is missing."""
    manifest = folder / "manifest.jsonl"
    if not manifest.is_file():
        raise InvalidRequest(f"{manifest} is missing: the recordings come with a checkout of Spool.")
    rows = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {str(folder / row["file"]): row["text"] for row in rows}


def compare_words(
    spoken: Mapping[str, str], heard: Mapping[str, str], reference: Mapping[str, str]
) -> tuple[int, WordErrors, WordErrors, list[str]]:
    """The number of recordings with no more errors than the reference, the errors of both, and the names of
    those with more. spoken: each recording's true words; one missing from `heard` counts as silence."""
    no_worse, total, known, worse = 0, WordErrors(0, 0), WordErrors(0, 0), []
    for name, words in spoken.items():
        errors = word_errors(words, heard.get(name, ""))
        best = word_errors(words, reference.get(name, ""))
        total, known = total + errors, known + best
        no_worse += errors.edits <= best.edits
        if errors.edits > best.edits:
            worse.append(name)
    return no_worse, total, known, worse


def spread(spoken: Mapping[str, str], count: int) -> dict[str, str]:
    """`count` recordings spread evenly over the set, or all if there are fewer."""
    names = list(spoken)
    chosen = names if count >= len(names) else [names[at * len(names) // count] for at in range(count)]
    return {name: spoken[name] for name in chosen}


def original_of(model: str) -> str:
    """The model of the catalogue that this one, a name or a folder of the store, was quantised from; else
    itself."""
    entry = load_catalogue().quantised(Path(model).name)
    return model if entry is None or entry.quantised is None else entry.quantised.of


def find_quantised(model: str) -> list[str]:
    """The models of this machine's store that were quantised from this one, a name or a folder there."""
    made = (row for row in open_store(load_settings()).entries() if row.state == "installed")
    return [
        row.entry.name for row in made if row.entry.quantised and row.entry.quantised.of == Path(model).name
    ]


def listen_reference(model: str, spoken: Collection[str], progress: Callable[[str], None]) -> dict[str, Any]:
    """What `model` hears in float32 on the CPU, as `listen` gives it. Raises InvalidRequest if it cannot
    transcribe, or is quantised."""
    reference = listen(model, "float32", "cpu", spoken, progress)
    if reference["bits"] is not None:
        raise InvalidRequest(
            f"The weights of {model} are quantised and cannot be the reference: name with --against the "
            "model that they were made from."
        )
    return reference


def compare_with(
    reference: Mapping[str, Any],
    model: str,
    dtype: str,
    spoken: Mapping[str, str],
    progress: Callable[[str], None],
) -> tuple[Quality, StepOutcome]:
    """The model's quality here in `dtype`, and as an outcome for a report; `progress` is called with a line
    for each recording. reference: of `listen_reference`. Raises InvalidRequest if the model cannot
    transcribe."""
    heard = listen(model, dtype, "default", spoken, progress)
    no_worse, errors, known, worse = compare_words(spoken, heard["words"], reference["words"])
    joules = None if heard["joules"] is None else heard["joules"] / heard["audio"]
    quality = Quality(
        recordings=len(spoken),
        no_worse=no_worse,
        wer=errors.rate,
        reference_wer=known.rate,
        rtfx=heard["audio"] / heard["seconds"],
        dtype=heard["dtype"],
        device=heard["device"],
        measured_at=clock.now().isoformat(timespec="seconds"),
        joules=joules,
        bits=heard["bits"],
    )
    text = (
        f"QoI {100 * quality.qoi:.1f} % ({no_worse} of {len(spoken)} recordings no worse), WER "
        f"{100 * quality.wer:.1f} %, float32's {100 * quality.reference_wer:.1f} %, RTFx {quality.rtfx:.1f} "
        f"in {quality.precision} on {quality.device}"
    )
    energy = (
        "this machine does not report its energy" if joules is None else f"{joules:.2f} J a second of audio"
    )
    details = [energy]
    for name in worse:
        ours, theirs = heard["words"].get(name, ""), reference["words"][name]
        details.append(f"{name}: float32 {theirs!r}, here {ours!r}")
    return quality, StepOutcome("ok", text, tuple(details))


def listen(
    model: str, dtype: str, device: str, names: Collection[str], progress: Callable[[str], None]
) -> dict[str, Any]:
    """What `worker.local.listen` prints: the model's facts, words by file, and the total audio. Raises
    InvalidRequest."""
    command = [sys.executable, "-m", "worker.local.listen", model, dtype, device, *names]
    words, answer, audio = {}, {}, 0.0
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        deadline = threading.Timer(LISTEN_SECONDS, process.kill)
        deadline.start()
        try:
            for line in process.stdout or ():
                answer = json.loads(line)
                if "file" not in answer:
                    continue
                words[answer["file"]] = answer["words"]
                audio += answer["audio"]
                progress(
                    f"{dtype}, {len(words)} of {len(names)}: {Path(answer['file']).name}, "
                    f"{answer['audio']:.1f} s of audio in {answer['seconds']:.1f} s"
                )
            process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            deadline.cancel()
        errors.seek(0)
        last_lines = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    if process.returncode or "dtype" not in answer:
        reason = "".join(last_lines) or f"its process ended with {process.returncode}"
        raise InvalidRequest(f"{model} cannot transcribe in {dtype}: {reason}")
    return answer | {"words": words, "audio": audio}
