"""What rescoring costs: batches of a WeNet model of a published shape, greedy against beam and rescoring.

    python -m ops.bench.wenet.rescoring [--model aishell|librispeech] [--beam 10] [--seconds 10] [--rounds 3]

Weights are random; the CTC head's are scaled and shifted so that it speaks as often and is as sure as a
trained one (about four tokens a second). A batch of 16 utterances goes from samples to words, each search in
turn in every round; times are the processor's, which other programs on the machine change little. The ratio
to greedy is the median of the rounds' own pairs.
"""

import argparse
import statistics
import time
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 - behind OpenBLAS
import numpy as np  # noqa: E402

from worker.audio import open_audio  # noqa: E402
from worker.engine.recognizer import decode_utterances  # noqa: E402
from worker.models.artifacts.safetensors import Safetensors  # noqa: E402
from worker.models.conformer.config import EncoderConfig  # noqa: E402
from worker.models.requests import DecodeRequest, SearchOptions  # noqa: E402
from worker.models.tokenizers.units import UnitTokenizer  # noqa: E402
from worker.models.weights import stored_shapes  # noqa: E402
from worker.models.wenet.config import DecoderSizes, WenetConfig  # noqa: E402
from worker.models.wenet.decoder import shapes_of  # noqa: E402
from worker.models.wenet.model import WENET, WenetModel, WenetNetwork, build_wenet  # noqa: E402

SAMPLES = Path(__file__).parents[3] / "samples" / "open"
RATE = 16_000
BATCH = 16
TOKENS_A_SECOND = 4.0
SHAPES = {"aishell": (256, 4, 2048, 12, 8, 4233), "librispeech": (256, 4, 2048, 12, 15, 5002)}


def random_model(name: str) -> WenetModel:
    """A U2++ of a published shape: conv2d, causal, layer norm, three decoder layers in both directions."""
    width, heads, inner, layers, kernel, vocabulary = SHAPES[name]
    encoder = EncoderConfig(
        feat_in=80,
        n_layers=layers,
        d_model=width,
        n_heads=heads,
        inner=inner,
        subsampling="conv2d",
        self_attention_model="rel_pos_unshifted",
        conv_kernel_size=kernel,
        conv_context_size=(kernel - 1, 0),
        conv_norm_type="layer_norm",
        conv_pads="input",
        has_final_norm=True,
    )
    sides = tuple(DecoderSizes(f"decoder.{side}_decoder", heads, 3, inner) for side in ("left", "right"))
    config = WenetConfig(vocabulary, vocabulary - 1, vocabulary - 1, encoder, sides, None)
    rng = np.random.default_rng(0)
    tensors = {}
    for tensor, shape in (stored_shapes(WenetNetwork(config), WENET) | shapes_of(config)).items():
        if tensor.endswith("bias") or "pos_bias" in tensor:
            values = np.zeros(shape)
        elif len(shape) == 1:
            values = np.ones(shape)
        else:
            values = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        tensors[tensor] = mx.array(values.astype(np.float32))
    units = ["<blank>", "<unk>", *(f"▁w{index}" for index in range(vocabulary - 3)), "<sos/eos>"]
    return build_wenet(
        config,
        UnitTokenizer(units),
        Safetensors(tensors),
        mx.float32,
        name=name,
        source=name,
        files={"weights": "0" * 64},
    )


def calibrated(model: WenetModel, samples: list[np.ndarray]) -> None:
    """Shifts the CTC head's blank until it says about as many tokens as speech has, and sharpens it."""
    encoded = model.encode(samples)
    frames = mx.concatenate(
        [encoded.frames[row, :length] for row, length in enumerate(encoded.lengths.tolist())]
    )
    decoder = model.heads["ctc"]._decoder
    logits = decoder(frames)
    decoder.weight = decoder.weight * (3.0 / float(mx.std(logits[:, 1:])))
    logits = decoder(frames)
    best = np.sort(np.array(mx.max(logits[:, 1:-1], axis=1) - logits[:, -1]))
    spoken = int(TOKENS_A_SECOND * len(best) * model.info.frame_seconds)
    decoder.bias = decoder.bias + mx.where(
        mx.arange(logits.shape[1]) == logits.shape[1] - 1, float(best[-spoken]), 0.0
    )
    mx.eval(decoder.weight, decoder.bias)


def recordings(seconds: float) -> list[np.ndarray]:
    """Sixteen utterances of this length, of the open samples one after another."""
    pieces, wanted = [], int(seconds * RATE)
    for path in sorted(SAMPLES.rglob("*.flac")) + sorted(SAMPLES.rglob("*.wav")):
        with open_audio(path) as stream:
            pieces.append(np.concatenate([block[:, 0] for block in stream.blocks()]))
        if sum(map(len, pieces)) >= BATCH * wanted:
            break
    whole = np.resize(np.concatenate(pieces), BATCH * wanted).astype(np.float32)
    return list(whole.reshape(BATCH, wanted))


def main(arguments: list[str] | None = None) -> None:
    """Times every search in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=sorted(SHAPES), default="aishell")
    parser.add_argument("--beam", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args(arguments)
    model, samples = random_model(asked.model), recordings(asked.seconds)
    calibrated(model, samples[:4])
    beam = asked.beam
    searches = {
        "greedy": SearchOptions(),
        f"beam {beam}": SearchOptions(decoder="beam", beam=beam, nbest=beam),
        f"beam {beam}, rescored from the left": SearchOptions(decoder="rescore", beam=beam, nbest=beam),
        f"beam {beam}, rescored both ways": SearchOptions(
            decoder="rescore", beam=beam, nbest=beam, ctc_weight=0.5, reverse_weight=0.3
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in searches}
    for turn in range(asked.rounds + 1):
        for name, options in searches.items():
            began = time.process_time()
            answers = decode_utterances(model, samples, options, [DecodeRequest()] * BATCH)
            for answer in answers:
                answer.words(model.tokenizer, model.info.frame_seconds)
            if turn:  # the first compiles
                times[name].append(time.process_time() - began)
            elif name == f"beam {beam}":
                tokens = statistics.mean(len(answer.hypotheses[0].tokens) for answer in answers)
                print(f"{asked.model}, {BATCH} x {asked.seconds:g} s, {tokens:.0f} tokens an utterance")
    greedy = times["greedy"]
    for name, taken in times.items():
        pairs = statistics.median(one / other for one, other in zip(taken, greedy, strict=True))
        print(f"{name}: {min(taken):.2f} s, {pairs:.2f} x greedy")


if __name__ == "__main__":
    main()
