"""Makes the golden files of this folder. Runs where NeMo is installed, and there alone.

    pip install torch==2.13.0 "nemo_toolkit[asr]==3.0.0"
    OMP_NUM_THREADS=1 python tests/golden/make_golden.py SPEECH

SPEECH is a folder with a `manifest.jsonl` (one JSON object a line with `path`, `text`, `split`) that holds
the utterances named in UTTERANCES. Everything is computed by NeMo one utterance at a time, so that no defect
of its batched decoding enters. README.md beside this file describes what is written.
"""

# ruff: noqa: E402 -- NeMo reads its environment when it is imported

import copy
import hashlib
import io
import json
import logging
import os
import shutil
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("NEMO_LOG_LEVEL", "ERROR")
os.environ.setdefault("NUMBA_DISABLE_CUDA", "1")
warnings.filterwarnings("ignore")
logging.getLogger("nv_one_logger").setLevel(logging.CRITICAL)

import numpy as np
import soundfile
import torch
from nemo.utils import logging as nemo_logging
from omegaconf import OmegaConf
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parent))
from recipes import RECIPES, Recipe, build, make_tokenizer, variant

HERE = Path(__file__).parent
UTTERANCES = [
    "speechocean762-000940074",
    "speechcommands-bed_037c445a_0",
    "librispeech-1089-134691-0001",
    "librispeech-1688-142285-0002",
    "speechocean762-000440043",
]
BEAMS = (1, 2, 4, 8)
FOLDERS = ("tdt", "rnnt", "hybrid")
FEATURE_ROWS = {80: 5, 128: 2}  # how many utterances: the wide ones are large
TOKENIZER_TEXTS = 3000
BEAM_OPTIONS = {
    "return_best_hypothesis": False,
    "score_norm": True,
    "allow_cuda_graphs": False,
    "max_symbols": 10,
}
Lists = list[list[Any]]  # hypotheses of each utterance, best first
LOCAL = {"self_attention_model": "rel_pos_local_attn", "att_context_size": [8, 8]}


def read_speech(folder: Path) -> tuple[list[np.ndarray], list[str]]:
    """The chosen utterances as int16, and texts to make a tokenizer from."""
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").open()]
    by_id = {row["id"]: row for row in rows}
    audio = [soundfile.read(folder / by_id[name]["path"], dtype="int16")[0] for name in UTTERANCES]
    texts = sorted({row["text"] for row in rows if row["split"] == "train" and " " in row["text"]})
    return audio, texts[:TOKENIZER_TEXTS]


def write_audio(audio: list[np.ndarray]) -> list[np.ndarray]:
    """Writes audio.npz and returns the utterances as float32."""
    lengths = np.array([len(row) for row in audio], np.int32)
    padded = np.zeros((len(audio), lengths.max()), np.int16)
    for row, samples in zip(padded, audio, strict=True):
        row[: len(samples)] = samples
    np.savez_compressed(HERE / "audio.npz", audio=padded, lengths=lengths, names=np.array(UTTERANCES))
    return [samples.astype(np.float32) / 32768.0 for samples in audio]


def write_nemo(model: torch.nn.Module, path: Path) -> None:
    """A real `.nemo`, its weights in 16 bit (NeMo restores the same 32-bit values from them)."""
    with tempfile.TemporaryDirectory() as scratch:
        saved = Path(scratch) / "saved.nemo"
        model.save_to(str(saved))
        with tarfile.open(saved) as source, tarfile.open(path, "w") as target:
            for member in sorted(source.getmembers(), key=lambda member: member.name):
                file = source.extractfile(member)
                if file is None:
                    continue
                raw = file.read()
                if member.name.endswith("model_weights.ckpt"):
                    raw = _halved(raw)
                entry = tarfile.TarInfo(member.name)
                entry.size = len(raw)
                target.addfile(entry, io.BytesIO(raw))


def _halved(raw: bytes) -> bytes:
    state = torch.load(io.BytesIO(raw), weights_only=True)
    for name, tensor in state.items():
        if tensor.is_floating_point() and not name.startswith("preprocessor."):
            assert torch.equal(tensor.half().float(), tensor), name
            state[name] = tensor.half()
    out = io.BytesIO()
    torch.save(state, out)
    return out.getvalue()


def write_folder(model: torch.nn.Module, tokenizer: Path, folder: Path) -> None:
    """The Hugging Face layout with MLX's names: LSTM as Wx, Wh and one bias, convolutions channels last, no
    front end."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = OmegaConf.to_container(model.cfg, resolve=True)
    (folder / "config.json").write_text(json.dumps(tree, indent=1, ensure_ascii=False) + "\n")
    state = {k: v for k, v in model.state_dict().items() if not k.startswith("preprocessor.")}
    tensors = {}
    for name, tensor in state.items():
        if name.endswith("num_batches_tracked") or "bias_hh_l" in name:
            continue
        if ".lstm." in name:
            stack, part = name.rsplit(".", 1)
            layer = part.rsplit("_l", 1)[1]
            if part.startswith("bias_ih"):
                # The sum of two 16-bit numbers need not be one: it stays 32 bit.
                tensors[f"{stack}.{layer}.bias"] = tensor + state[f"{stack}.bias_hh_l{layer}"]
            else:
                tensors[f"{stack}.{layer}.{'Wx' if 'ih' in part else 'Wh'}"] = tensor.half()
        elif tensor.ndim in (3, 4):
            tensors[name] = tensor.half().movedim(1, -1).contiguous()
        else:
            tensors[name] = tensor.half().contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "mlx"})
    shutil.copyfile(tokenizer / "tokenizer.model", folder / "tokenizer.model")


def pack(found: Lists) -> dict[str, np.ndarray]:
    """Hypotheses of each utterance as arrays padded with -1 (scores with minus infinity)."""
    most = max(1, *(len(row) for row in found))
    longest = max([1, *(len(hypothesis.y_sequence) for row in found for hypothesis in row)])
    shape = (len(found), most)
    out = {key: np.full((*shape, longest), -1, np.int16) for key in ("tok", "time", "dur")}
    out["len"] = np.zeros(shape, np.int16)
    out["score"] = np.full(shape, -np.inf, np.float64)
    out["n"] = np.array([len(row) for row in found], np.int16)
    for b, row in enumerate(found):
        for k, hypothesis in enumerate(row):
            tokens = np.asarray(hypothesis.y_sequence).reshape(-1)
            out["len"][b, k], out["score"][b, k] = len(tokens), float(hypothesis.score)
            out["tok"][b, k, : len(tokens)] = tokens
            times = hypothesis.timestamp
            times = times.get("timestep", []) if isinstance(times, dict) else times
            for key, values in (("time", times), ("dur", getattr(hypothesis, "token_duration", None))):
                if values is not None and len(values) == len(tokens):
                    out[key][b, k, : len(tokens)] = np.asarray(values).reshape(-1)
    return out


def transducer_search(model: torch.nn.Module, encoded: list[torch.Tensor], beam: int | None) -> Lists:
    """Greedy label looping (beam None) or malsd_batch, one utterance at a time."""
    config = copy.deepcopy(model.cfg.decoding)
    OmegaConf.set_struct(config, False)
    config.tdt_include_token_duration = beam is None
    if beam is None:
        config.strategy, config.greedy = "greedy_batch", OmegaConf.create({"max_symbols": 10})
    else:
        config.strategy = "malsd_batch"
        config.beam = OmegaConf.create({"beam_size": beam, **BEAM_OPTIONS})
    kind = {"decoder_type": "rnnt"} if hasattr(model, "cur_decoder") else {}
    model.change_decoding_strategy(config, verbose=False, **kind)
    found = []
    for frames in encoded:
        length = torch.tensor([frames.shape[2]])
        rows = model.decoding.rnnt_decoder_predictions_tensor(frames, length, return_hypotheses=True)
        found.append(rows[0] if isinstance(rows[0], list) else [rows[0]])
    return found


def ctc_search(model: torch.nn.Module, logs: list[torch.Tensor]) -> Lists:
    """CTC greedy, one utterance at a time."""
    decoding = model.ctc_decoding if hasattr(model, "ctc_decoding") else model.decoding
    found = []
    for rows in logs:
        length = torch.tensor([rows.shape[1]])
        found.append(
            decoding.ctc_decoder_predictions_tensor(
                decoder_outputs=rows, decoder_lengths=length, return_hypotheses=True
            )
        )
    return found


def stack(rows: list[torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """[1, T, d] tensors of several T, padded with zeros to one [B, T, d], and their T."""
    lengths = np.array([row.shape[1] for row in rows], np.int32)
    out = np.zeros((len(rows), lengths.max(), rows[0].shape[2]), np.float32)
    for target, row in zip(out, rows, strict=True):
        target[: row.shape[1]] = row[0].numpy()
    return out, lengths


@torch.inference_mode()
def dump(
    model: torch.nn.Module, recipe: Recipe, encoder: torch.nn.Module, audio: list[np.ndarray]
) -> dict[str, Any]:
    """Everything that NeMo says of the utterances; `encoder` may be a variant of the model's own."""
    model.preprocessor.featurizer.dither = 0.0
    caught: dict[str, Any] = {}
    handle = encoder.pre_encode.register_forward_hook(lambda _m, _a, out: caught.update(last=out[0]))
    features, pre_encode, encoded = [], [], []
    for samples in audio:
        signal, length = torch.from_numpy(samples)[None], torch.tensor([len(samples)])
        mel, frames = model.preprocessor(input_signal=signal, length=length)
        mel = mel[:, :, : int(frames[0])]
        out, count = encoder(audio_signal=mel, length=frames)
        features.append(mel.transpose(1, 2))
        pre_encode.append(caught["last"])
        encoded.append(out[:, :, : int(count[0])])
    handle.remove()
    result = {}
    result["features"], result["features_len"] = stack(features)
    result["pre_encode"], _ = stack(pre_encode)
    result["encoder"], result["encoder_len"] = stack([e.transpose(1, 2) for e in encoded])
    searches = {}
    if recipe.head != "ctc":
        result["blank"] = np.array(model.decoder.blank_idx)
        searches["greedy"] = transducer_search(model, encoded, None)
        for beam in BEAMS:
            searches[f"malsd.k{beam}"] = transducer_search(model, encoded, beam)
    if recipe.head in ("tdt", "hybrid"):
        result["durations"] = np.array(list(model.cfg.decoding.durations))
    if recipe.head in ("ctc", "hybrid"):
        head = model.decoder if recipe.head == "ctc" else model.ctc_decoder
        logs = [head(encoder_output=e) for e in encoded]
        result["ctc_log_probs"], _ = stack(logs)
        result["blank"] = np.array(logs[0].shape[-1] - 1)
        searches["ctc_greedy"] = ctc_search(model, logs)
    for name, found in searches.items():
        result |= {f"{name}.{key}": value for key, value in pack(found).items()}
        result[f"{name}.text"] = np.array(json.dumps([[h.text for h in row] for row in found]))
    return result


def write_golden(name: str, result: dict[str, Any]) -> None:
    """One npz a model; features, which depend on the number of mels alone, once in a file of their own."""
    features, lengths = result.pop("features"), result.pop("features_len")
    mels = features.shape[2]
    rows = FEATURE_ROWS[mels]
    lengths = lengths[:rows]
    features = features[:rows, : lengths.max()]
    np.savez_compressed(HERE / f"features_{mels}.npz", features=features, features_len=lengths)
    np.savez_compressed(HERE / f"{name}.npz", **result)


def main() -> None:
    torch.set_num_threads(1)
    nemo_logging.setLevel(logging.ERROR)
    recorded, texts = read_speech(Path(sys.argv[1]))
    audio = write_audio(recorded)
    for recipe in RECIPES:
        with tempfile.TemporaryDirectory() as scratch:
            tokenizer = make_tokenizer(texts, recipe.vocabulary, Path(scratch) / "tokenizer")
            model = build(recipe, tokenizer, audio)
            write_nemo(model, HERE / f"{recipe.name}.nemo")
            if recipe.name in FOLDERS:
                write_folder(model, tokenizer, HERE / recipe.name)
            # What is written is what is computed with: NeMo restores the file.
            model = type(model).restore_from(str(HERE / f"{recipe.name}.nemo"), map_location="cpu").eval()
            write_golden(recipe.name, dump(model, recipe, model.encoder, audio))
            if recipe.name == "hybrid":
                write_golden("hybrid_local", dump(model, recipe, variant(model, **LOCAL), audio))
        print(
            recipe.name,
            hashlib.sha256((HERE / f"{recipe.name}.nemo").read_bytes()).hexdigest()[:12],
            flush=True,
        )


if __name__ == "__main__":
    main()
