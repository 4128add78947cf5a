"""Random models of the published sizes in the hub's layout, made where transformers is installed.

    python -m ops.bench.peers.hub.make FAMILY FOLDER LAYERS

Weights are transformers' initial ones of a fixed seed, rounded to bfloat16 as all five are published. The
tokenizer spells every byte and has as many tokens as published, which mean nothing.
"""

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CanaryConfig,
    CanaryForConditionalGeneration,
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
    ParakeetFeatureExtractor,
    ParakeetForTDT,
    ParakeetProcessor,
    ParakeetTDTConfig,
    ParakeetTokenizer,
    PreTrainedModel,
    Qwen2Tokenizer,
    Qwen3ASRConfig,
    Qwen3ASRFeatureExtractor,
    Qwen3ASRForConditionalGeneration,
    Qwen3ASRProcessor,
    TokenizersBackend,
)

BLANKS = 0.7  # of the frames, as a trained model has them
VOCABULARY = 151_936  # of Qwen3


def byte_tokens(count: int, first: tuple[str, ...]) -> Tokenizer:
    """A byte-level BPE of `count` tokens without merges, special ones first."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    longer = ("".join(word) for length in (2, 3) for word in itertools.product(letters, repeat=length))
    pieces = itertools.islice(itertools.chain(first, letters, longer), count)
    tokenizer = Tokenizer(models.BPE({piece: token for token, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in first])
    return tokenizer


def save(model: PreTrainedModel, folder: Path) -> None:
    """Write a model in bfloat16, in which all five are published."""
    model.to(torch.bfloat16).save_pretrained(folder)


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
    save(model, folder)
    GraniteSpeech5Processor(extractor, tokenizer).save_pretrained(folder)


PROMPT = (
    *("<unk>", "<|nospeech|>", "<pad>", "<|endoftext|>", "<|startoftranscript|>", "<|pnc|>", "<|nopnc|>"),
    *("<|startofcontext|>", "<|itn|>", "<|noitn|>", "<|timestamp|>", "<|notimestamp|>", "<|diarize|>"),
    *("<|nodiarize|>", "<|spkchange|>", "<|audioseparator|>", "<|emo:undefined|>", "<|en|>", "▁"),
)


def prompt_tokenizer(count: int) -> TokenizersBackend:
    """Bytes behind the tokens of NeMo's prompts."""
    return TokenizersBackend(
        tokenizer_object=byte_tokens(count, PROMPT),
        bos_token="<|startoftranscript|>",
        eos_token="<|endoftext|>",
        pad_token="<pad>",
        unk_token="<unk>",
    )


def answer_at_length(
    model: CanaryForConditionalGeneration | CohereAsrForConditionalGeneration, start: str
) -> None:
    """No token ends an answer before its hundredth: as many as half a minute of English has."""
    with torch.inference_mode():
        model.proj_out.bias[3] -= 100
    model.generation_config = GenerationConfig(
        bos_token_id=4,
        eos_token_id=3,
        pad_token_id=2,
        max_new_tokens=100,
        decoder_start_token_id=PROMPT.index(start),
    )


def make_cohere(folder: Path, layers: int) -> None:
    """cohere-transcribe-03-2026's sizes."""
    config = CohereAsrConfig(encoder_config={"model_type": "parakeet_encoder", "num_hidden_layers": layers})
    model, extractor = CohereAsrForConditionalGeneration(config).eval(), CohereAsrFeatureExtractor()
    answer_at_length(model, "▁")
    save(model, folder)
    CohereAsrProcessor(extractor, prompt_tokenizer(config.vocab_size)).save_pretrained(folder)


def make_canary(folder: Path, layers: int) -> None:
    """canary-1b-v2's sizes. Without a processor, which would need a template for its prompts."""
    encoder = {"num_hidden_layers": layers, "num_mel_bins": 128, "scale_input": False}
    config = CanaryConfig(encoder_config={"model_type": "parakeet_encoder", **encoder})
    model = CanaryForConditionalGeneration(config).eval()
    answer_at_length(model, "<|startofcontext|>")
    save(model, folder)
    ParakeetFeatureExtractor(feature_size=128).save_pretrained(folder)
    prompt_tokenizer(config.vocab_size).save_pretrained(folder)


def make_parakeet(folder: Path, layers: int) -> None:
    """parakeet-tdt-0.6b-v3's sizes."""
    encoder = {"num_hidden_layers": layers, "num_mel_bins": 128, "scale_input": False}
    encoder |= {"attention_bias": False, "convolution_bias": False}
    config = ParakeetTDTConfig(
        encoder_config={"model_type": "parakeet_encoder", **encoder},
        vocab_size=8193,
        blank_token_id=8192,
        pad_token_id=1,
    )
    tokens = byte_tokens(8192, ("<unk>", "<pad>"))
    tokens.add_special_tokens([AddedToken("<blank>", special=True)])
    tokenizer = ParakeetTokenizer(tokenizer_object=tokens, pad_token="<pad>", unk_token="<unk>")
    save(ParakeetForTDT(config).eval(), folder)
    extractor = ParakeetFeatureExtractor(feature_size=128)
    ParakeetProcessor(extractor, tokenizer, decoder_type="tdt").save_pretrained(folder)


TURNS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>")
MARKS = ("<asr_text>", "<timestamp>")  # tokens that are not special


def make_qwen(folder: Path, layers: int) -> None:
    """Qwen3-ASR-0.6B's sizes; layers: of the audio tower. Answers have 100 tokens."""
    plain = json.loads(byte_tokens(VOCABULARY - 16, ()).to_str())["model"]["vocab"]
    tokenizer = Qwen2Tokenizer(
        vocab=plain,
        merges=[],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens={
            "audio_token": "<|audio_pad|>",
            "audio_bos_token": "<|audio_start|>",
            "audio_eos_token": "<|audio_end|>",
        },
    )
    tokenizer.add_tokens([AddedToken(token, special=True) for token in TURNS])
    tokenizer.add_tokens([AddedToken(token, special=False) for token in MARKS])
    number = tokenizer.convert_tokens_to_ids
    ends = [number("<|endoftext|>"), number("<|im_end|>")]
    config = Qwen3ASRConfig(
        audio_config={
            "model_type": "qwen3_asr_encoder",
            "encoder_layers": layers,
            "d_model": 896,
            "encoder_attention_heads": 14,
            "encoder_ffn_dim": 3584,
            "output_dim": 1024,
        },
        text_config={
            "model_type": "qwen3",
            "vocab_size": VOCABULARY,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
        audio_token_id=number("<|audio_pad|>"),
        timestamp_token_id=number("<timestamp>"),
        pad_token_id=ends[1],
        eos_token_id=ends,
        tie_word_embeddings=True,
    )
    model = Qwen3ASRForConditionalGeneration(config).eval()
    # No token ends an answer before its hundredth, so that both write as much.
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=ends[1], max_new_tokens=100)
    save(model, folder)
    Qwen3ASRProcessor(Qwen3ASRFeatureExtractor(), tokenizer).save_pretrained(folder)


MAKERS: dict[str, Callable[[Path, int], None]] = {
    "canary": make_canary,
    "cohere": make_cohere,
    "granite": make_granite,
    "parakeet": make_parakeet,
    "qwen": make_qwen,
}


def main() -> None:
    family, folder, layers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(7)
    MAKERS[family](folder, layers)
    print(f"made {folder}")


if __name__ == "__main__":
    main()
