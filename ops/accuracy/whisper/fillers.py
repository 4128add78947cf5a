"""How many fillers (um, uh, hmm …) a Whisper writes of those that were said, and what that costs elsewhere.

    python -m ops.accuracy.whisper.fillers SPEECH [--model whisper-tiny.en] [--domain misc]

SPEECH holds `manifest.jsonl` and the recordings it names, with their words. The settings: as jobs have them;
with nothing suppressed but special tokens; with a prompt that has fillers itself; with both. First, how many
lines of the manifest have fillers, and how many words of them `verbatim` would mark.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

from ops.testbed.running_api import transcript_of
from spool.domain import mark_disfluencies
from spool.wer import normal_words, total_errors, word_errors
from worker.local.transcribe import transcribe_with
from worker.models.load import load_model
from worker.models.requests import DecodeRequest, SearchOptions
from worker.models.whisper.model import WhisperModel
from worker.models.whisper.rules import WhisperRules

PROMPT = "Umm, let me think like, hmm... Okay, here's what I'm, uh, like, thinking."
_FILLER = re.compile(r"um+|uh+m*|er|erm+|hm+|mm+")


def fillers_in(text: str) -> list[str]:
    return [word for word in normal_words(text) if _FILLER.fullmatch(word)]


def without_fillers(text: str) -> str:
    return " ".join(word for word in normal_words(text) if not _FILLER.fullmatch(word))


def unsuppressed(model: WhisperModel) -> WhisperRules:
    """The model's rules with its special tokens alone forbidden."""
    special = tuple(token for token in model.settings.suppress if token >= model.ids.eot)
    return WhisperRules(model.ids, replace(model.settings, suppress=special))


def measure(model: WhisperModel, files: list[Path], references: list[str], prompt: str) -> str:
    """Fillers written and said, fillers where none was said, and the error rate of the other words."""
    results = transcribe_with(model, files, SearchOptions(decoder="greedy"), ask=DecodeRequest(prompt=prompt))
    heard = [result.transcript.text for result in results if result.transcript is not None]
    pairs = list(zip(references, heard, strict=True))
    said = sum(len(fillers_in(reference)) for reference in references)
    written = sum(min(len(fillers_in(one)), len(fillers_in(other))) for one, other in pairs)
    more = sum(max(0, len(fillers_in(other)) - len(fillers_in(one))) for one, other in pairs)
    errors = total_errors(word_errors(without_fillers(one), without_fillers(other)) for one, other in pairs)
    return (
        f"{written} of {said} fillers, {more} more; WER of the rest {errors.rate:.1%} of {errors.words} words"
    )


def suppressed_fillers(model: WhisperModel) -> Iterable[str]:
    """The tokens of fillers among those that the model is never to write."""
    texts = (model.tokenizer.pieces[token] for token in model.settings.suppress if token < model.ids.eot)
    return (text for text in texts if fillers_in(text))


def count_marks(texts: Iterable[str]) -> Counter[str]:
    """How many lines have each kind of mark, and how many words."""
    counts: Counter[str] = Counter()
    for text in texts:
        if not text:
            continue
        record = transcript_of("job", tuple(text.split())).model_copy(update={"language": "en"})
        marks = [word.disfluency for word in mark_disfluencies(record, "mark").words if word.disfluency]
        counts.update(f"words: {mark}" for mark in marks)
        counts.update(f"lines: {mark}" for mark in set(marks))
    return counts


def main() -> None:
    """Print one line for each setting."""
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.whisper.fillers", description=__doc__)
    parser.add_argument("speech", type=Path)
    parser.add_argument("--model", default="whisper-tiny.en")
    parser.add_argument("--domain", default="misc", help="of the manifest's recordings")
    options = parser.parse_args()
    lines = [json.loads(line) for line in (options.speech / "manifest.jsonl").read_text().splitlines()]
    print(f"{len(lines)} transcripts: {dict(count_marks(line['text'] for line in lines))}", flush=True)
    chosen = [line for line in lines if line["domain"] == options.domain]
    files, references = [options.speech / line["path"] for line in chosen], [line["text"] for line in chosen]
    model = load_model(options.model)
    assert isinstance(model, WhisperModel)
    print(
        f"{len(files)} recordings; suppressed tokens of fillers: {list(suppressed_fillers(model)) or 'none'}"
    )
    own = model.rules
    for name, rules in (("as jobs", own), ("nothing suppressed", unsuppressed(model))):
        model.rules = rules
        for prompt in ("", PROMPT):
            print(
                f"{name}{', prompt' if prompt else ''}: {measure(model, files, references, prompt)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
