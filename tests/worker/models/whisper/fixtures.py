"""The tiny model, loaded once, and the numpy restatement on the same weights."""

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.golden.whisper_reference import ReferenceWhisper
from tests.worker.models.whisper.tiny import make_dims, make_tensors, tone, write_openai
from worker.models import EncodedWindow, TokenTimes, WhisperModel, align_tokens, load_whisper
from worker.models.base_attention import Trail

SECONDS = (30.0, 3.0, 12.5, 0.5, 7.3, 20.0)


@cache
def tiny_model(vocabulary: int = 51865) -> WhisperModel:
    dims = make_dims(vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        return load_whisper(write_openai(Path(folder), dims, make_tensors(dims)))


@cache
def reference(vocabulary: int = 51865) -> ReferenceWhisper:
    dims = make_dims(vocabulary)
    return ReferenceWhisper(dims, make_tensors(dims))


@cache
def windows(vocabulary: int = 51865) -> list[EncodedWindow]:
    return tiny_model(vocabulary).encode([tone(seconds, seed) for seed, seconds in enumerate(SECONDS)])


def align(
    model: WhisperModel,
    encoded: Sequence[EncodedWindow],
    texts: Sequence[Sequence[int]],
    trails: Sequence[Trail | None] = (),
) -> list[TokenTimes | None]:
    """When the tokens of English texts were spoken."""
    prompts = [model.ids.prompt(timestamps=False)] * len(encoded)
    return align_tokens(model.head, encoded, prompts, texts, model.frame_seconds, trails)
