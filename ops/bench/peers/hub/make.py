"""Random models of the published sizes in the hub's layout, made where transformers is installed.

    python -m ops.bench.peers.hub.make FAMILY FOLDER LAYERS

Weights are transformers' initial ones of a fixed seed, float32. The tokenizer spells every byte and has as
many tokens as published, which mean nothing.
"""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CohereAsrConfig,
    CohereAsrFeatureExtractor,
    CohereAsrForConditionalGeneration,
    CohereAsrProcessor,
    GenerationConfig,
    GraniteSpeech5CTCConfig,
    GraniteSpeech5EncoderConfig,
    GraniteSpeech5FeatureExtractor,
    GraniteSpeech5ForCTC,
    GraniteSpeech5Processor,
    ParakeetTokenizer,
    TokenizersBackend,
)

BLANKS = 0.7  # of the frames, as a trained model has them


def byte_tokens(count: int, first: tuple[str, ...]) -> Tokenizer:
    """A byte-level BPE of `count` tokens without merges, special ones first."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = ("".join(pair) for pair in itertools.product(letters, repeat=2))
    pieces = itertools.islice(itertools.chain(first, letters, pairs), count)
    tokenizer = Tokenizer(models.BPE({piece: token for token, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in first])
    return tokenizer


def make_granite(folder: Path, layers: int) -> None:
    """granite-speech-5.0-470m-turboctc's sizes. Blank is made as likely as in a trained model."""
    config = GraniteSpeech5CTCConfig(encoder_config=GraniteSpeech5EncoderConfig(num_hidden_layers=layers))
    model, extractor = GraniteSpeech5ForCTC(config).eval(), GraniteSpeech5FeatureExtractor()
    sound = torch.randn(5 * 16_000).numpy() * 0.1
    with torch.inference_mode():
        logits = model(extractor(sound, sampling_rate=16_000, return_tensors="pt")["input_features"]).logits
        gaps = logits[..., 1:].max(-1).values - logits[..., 0]
        model.encoder.out.bias[0] += gaps.flatten().quantile(BLANKS)
    tokenizer = ParakeetTokenizer(
        tokenizer_object=byte_tokens(config.vocab_size, ("<|blank|>",)), pad_token="<|blank|>"
    )
    model.save_pretrained(folder)
    GraniteSpeech5Processor(extractor, tokenizer).save_pretrained(folder)


PROMPT = (
    *("<unk>", "<|nospeech|>", "<pad>", "<|endoftext|>", "<|startoftranscript|>", "<|pnc|>", "<|nopnc|>"),
    *("<|startofcontext|>", "<|itn|>", "<|noitn|>", "<|timestamp|>", "<|notimestamp|>", "<|diarize|>"),
    *("<|nodiarize|>", "<|spkchange|>", "<|audioseparator|>", "<|emo:undefined|>", "<|en|>", "▁"),
)


def make_cohere(folder: Path, layers: int) -> None:
    """cohere-transcribe-03-2026's sizes. Answers have as many tokens as half a minute of English."""
    config = CohereAsrConfig(encoder_config={"model_type": "parakeet_encoder", "num_hidden_layers": layers})
    model, extractor = CohereAsrForConditionalGeneration(config).eval(), CohereAsrFeatureExtractor()
    with torch.inference_mode():
        model.proj_out.bias[3] -= 100  # never an end, so that both write as much
    tokenizer = TokenizersBackend(
        tokenizer_object=byte_tokens(config.vocab_size, PROMPT),
        bos_token="<|startoftranscript|>",
        eos_token="<|endoftext|>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
    model.generation_config = GenerationConfig(
        bos_token_id=4,
        eos_token_id=3,
        pad_token_id=2,
        max_new_tokens=100,
        decoder_start_token_id=PROMPT.index("▁"),
    )
    model.save_pretrained(folder)
    CohereAsrProcessor(extractor, tokenizer).save_pretrained(folder)


MAKERS: dict[str, Callable[[Path, int], None]] = {"cohere": make_cohere, "granite": make_granite}


def main() -> None:
    family, folder, layers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(7)
    MAKERS[family](folder, layers)
    print(f"made {folder}")


if __name__ == "__main__":
    main()
