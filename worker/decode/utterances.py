"""From samples to results with any head: used by the engine, the command line and reports.

Chooses between heads over encoder frames and attention decoders.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.decode.alignment.aligner import CtcModel, label_emissions
from worker.decode.attention.reading import beams_of, read_utterances
from worker.decode.result import Answer, answers
from worker.decode.search import check_options, check_request, resolve_search
from worker.decode.types import DecodeRequest, SearchOptions
from worker.models.base import Ahead, CacheAwareModel, ModelWithFront, SpeechModel

NOTHING = DecodeRequest()


def check_decoding(model: SpeechModel, options: SearchOptions, request: DecodeRequest) -> None:
    """Raise InvalidRequest, naming the option, if `decode_utterances` would, before any audio is read."""
    model.prepare(request.speech)
    check_context(model, options)
    check_options(model, options, request)
    _, searcher = resolve_search(model, options)
    if searcher.run is None:
        beams_of(model, options)  # type: ignore[arg-type]


def check_context(model: SpeechModel, options: SearchOptions) -> None:
    """Raise InvalidRequest if the model cannot run with the requested attention context."""
    known = model.capabilities.att_contexts
    if options.att_context is None or options.att_context in known:
        return
    left, right = options.att_context
    if model.capabilities.any_context and left >= -1 and right >= 0:
        return
    setting = f"att_context {options.att_context[0]},{options.att_context[1]}"
    if model.capabilities.any_context:
        raise InvalidRequest(f"{setting}: neither may be negative, except a left of -1 (all frames)")
    if not known:
        raise InvalidRequest(f"{setting}: {model.info.name} has no choice of attention contexts")
    names = " ".join(f"{left},{right}" for left, right in known)
    raise InvalidRequest(f"{setting}: {model.info.name} was trained for {names}")


def decode_utterances(
    model: SpeechModel,
    samples: Sequence[NDArray[np.float32]],
    options: SearchOptions,
    requests: Sequence[DecodeRequest],
    ahead: Ahead | None = None,
) -> list[Answer]:
    """The results of utterances, [N] float32 at 16 kHz each. An utterance depends only on itself and its
    request. `ahead`: the outputs of the model's front, where already computed. Raises InvalidRequest for what
    the model cannot do."""
    _, searcher = resolve_search(model, options)
    if searcher.run is not None:
        for request in requests:
            model.prepare(request.speech)
        if ahead is not None:
            encoded = cast("ModelWithFront", model).encode(samples, options.att_context, ahead)
        elif options.att_context is None:
            encoded = model.encode(samples)
        else:
            encoded = cast("CacheAwareModel", model).encode(samples, options.att_context)
        mx.eval(encoded.frames)
        plain = all(request == NOTHING for request in requests)
        decoded = answers(model, encoded, options, None if plain else requests)
        if plain or not any(request.labels for request in requests):
            return decoded
        head = cast("CtcModel", model).heads["ctc"]
        return [
            replace(
                answer, emissions=label_emissions(head, encoded.frames[row, : answer.frames], request.labels)
            )
            if request.labels
            else answer
            for row, (answer, request) in enumerate(zip(decoded, requests, strict=True))
        ]
    for request in requests:
        check_request(searcher, options, request)
    return read_utterances(model, samples, options, requests)  # type: ignore[arg-type]
