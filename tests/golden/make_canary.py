"""Makes `canary.npz` from dumps of NeMo 3.0.0 (repaired) of two small random models of Canary's shapes.

    python -m tests.golden.make_canary MODELS DUMPS AUDIO

MODELS holds `aed_v2.nemo` (one tokenizer, an aligner) and `aed_small_flash.nemo` (aggregate tokenizer, time
stamps), DUMPS what NeMo answered (`NAME.npz`). Kept: of the first the decoder's tensors (positions cut to
160) and the encoder's, two recordings, the frames it attends to, prompts, greedy tokens, n-best lists and
alignments with the columns of log-probabilities that they need; of the second tokenizers, prompts and the
words of its stamps.

AUDIO holds the recordings.
"""

import json
import sys
from pathlib import Path

import numpy as np
import soundfile

from worker.models import TOKENIZER_SUFFIX, open_nemo, parse_canary

OUT = Path(__file__).with_name("canary.npz")
POSITIONS = 160
TABLE = "log_softmax.mlp.layer0.weight"


def parts(path: Path) -> dict[str, np.ndarray]:
    """Configuration and tokenizers as bytes."""
    with open_nemo(path) as archive:
        kept = {"config": archive.config}
        kept |= {name: raw for name, raw in archive.files.items() if name.endswith(TOKENIZER_SUFFIX)}
        return {f"{path.stem}/{name}": np.frombuffer(raw, np.uint8) for name, raw in kept.items()}


def decoder(path: Path, vocabulary: int) -> dict[str, np.ndarray]:
    """The tensors beside the encoder's; the head's table is the embedding."""
    with open_nemo(path) as archive:
        names = parse_canary(archive.config, str(path)).parts(vocabulary).shapes
        tensors = {name: np.array(archive.weights.read(name)) for name in names}
    assert np.array_equal(tensors.pop(TABLE), tensors["transf_decoder._embedding.token_embedding.weight"])
    positions = "transf_decoder._embedding.position_embedding.pos_enc"
    tensors[positions] = tensors[positions][:POSITIONS]
    return {f"tensor/{name}": value for name, value in tensors.items()}


def whole(path: Path, wavs: list[str], audio: Path) -> dict[str, np.ndarray]:
    """The encoder's tensors, and the recordings of rows 1 and 2, which are short."""
    with open_nemo(path) as archive:
        names = [name for name in archive.weights.shapes if name.startswith("encoder.")]
        kept = {f"encoder/{name}": np.array(archive.weights.read(name)) for name in names}
    for row in (1, 2):
        samples, _ = soundfile.read(audio / f"{wavs[row]}.wav", dtype="int16")
        kept[f"wav.{row}"] = samples
    return kept


def answers(dump: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    kept: dict[str, np.ndarray] = {"prompts": dump["prompts"]}
    for key, value in dump.items():
        if key.startswith(("greedy.", "beam.")) and not key.endswith((".norm", ".done")):
            kept[key] = value.astype(np.float32 if key.endswith(".score") else np.int16)
        elif key.startswith(("dec_in.", "align_text.")):
            kept[key] = value
    return kept


def alignments(dump: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    kept = {}
    for row in range(len(dump["wavs"])):
        times = json.loads(str(dump[f"align.{row}"]))
        words = [[each["word"], each["start"], each["end"]] for each in times["word"]]
        tokens = [[each["token_id"], each["start"], each["end"]] for each in times["char"]]
        kept[f"align.{row}"] = np.array(json.dumps({"words": words, "tokens": tokens}))
        table = dump[f"align_logp.{row}"]
        kept[f"align_logs.{row}"] = table[:, [*(token for token, *_ in tokens), table.shape[1] - 1]]
    return kept


def main(models: Path, dumps: Path, audio: Path) -> None:
    single, flash = (dict(np.load(dumps / f"{name}.npz")) for name in ("aed_v2", "aed_small_flash"))
    kept = parts(models / "aed_v2.nemo") | parts(models / "aed_small_flash.nemo")
    kept |= decoder(models / "aed_v2.nemo", int(single["vocab"])) | answers(single) | alignments(single)
    kept |= whole(models / "aed_v2.nemo", [str(name) for name in single["wavs"]], audio)
    kept["flash_prompts"] = flash["prompts"]
    for row in range(len(flash["wavs"])):
        kept[f"flash_words.{row}"] = flash[f"words.{row}.stamps"]
        kept[f"flash_tokens.{row}"] = flash[f"greedy.{row}.stamps"].astype(np.int16)
    np.savez_compressed(OUT, allow_pickle=True, **kept)
    print(f"{OUT}: {len(kept)} arrays, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
