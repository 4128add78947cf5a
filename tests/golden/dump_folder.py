"""What NeMo says of a model in the Hugging Face layout (NeMo's weight names), on any recordings.

    python tests/golden/dump_folder.py models/demo OUT.npz RECORDING.flac ...

Runs where NeMo is installed. Writes the keys of README.md and the audio; `parity.py` compares. This is how
the demo model, whose weights change, is held against NeMo by hand.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from make_golden import dump, np, soundfile, torch
from nemo.collections.asr.models import EncDecHybridRNNTCTCBPEModel
from omegaconf import OmegaConf
from recipes import DATA, Recipe
from safetensors.torch import load_file


def restore(folder: Path) -> torch.nn.Module:
    """A hybrid TDT-CTC model from the folder's configuration and weights."""
    config = json.loads((folder / "config.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "tokenizer.model").write_bytes((folder / "tokenizer.model").read_bytes())
        words = config["joint"]["vocabulary"]
        (Path(scratch) / "vocab.txt").write_text("\n".join(words) + "\n")
        (Path(scratch) / "tokenizer.vocab").write_text("".join(f"{word}\t0\n" for word in words))
        config["tokenizer"] = {"dir": scratch, "type": "bpe"}
        config |= {name: dict(DATA) for name in ("train_ds", "validation_ds", "test_ds")}
        config["joint"] |= {"fuse_loss_wer": False, "fused_batch_size": -1}
        hidden = config["joint"]["jointnet"]["joint_hidden"]
        config.setdefault("model_defaults", {}).update(
            enc_hidden=config["encoder"]["d_model"], pred_hidden=hidden, joint_hidden=hidden
        )
        config["loss"] = {"loss_name": "tdt", "tdt_kwargs": {"durations": config["decoding"]["durations"]}}
        config["decoding"].setdefault("greedy", {"max_symbols": 10})
        config.setdefault("aux_ctc", {})["decoding"] = {"strategy": "greedy_batch"}
        model = EncDecHybridRNNTCTCBPEModel(cfg=OmegaConf.create(config)).eval()
    tensors = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    missing, surplus = model.load_state_dict(tensors, strict=False)
    lacking = [name for name in missing if not name.startswith("preprocessor.") and "num_batches" not in name]
    assert not lacking, lacking
    assert not surplus, surplus
    return model


def main() -> None:
    folder, out, recordings = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    model = restore(folder)
    recorded = [soundfile.read(path, dtype="int16")[0] for path in recordings]
    audio = [samples.astype(np.float32) / 32768.0 for samples in recorded]
    result = dump(model, Recipe(folder.name, 0, "hybrid"), model.encoder, audio)
    lengths = np.array([len(samples) for samples in recorded], np.int32)
    padded = np.zeros((len(recorded), lengths.max()), np.int16)
    for row, samples in zip(padded, recorded, strict=True):
        row[: len(samples)] = samples
    np.savez_compressed(out, audio=padded, lengths=lengths, **result)


if __name__ == "__main__":
    main()
