"""Makes NAME.beams.npz and lm.arpa: NeMo's wide beams, CTC beams, and searches with a language model.

    OMP_NUM_THREADS=1 python tests/golden/make_beams.py [FOLDER RECORDING.flac ...]

Runs where NeMo is installed, and there alone: on the encoder frames that `make_golden.py` stored, or on any
recordings, whose frames and lists go to FOLDER (for `beam_parity.py`). One utterance at a time, so no defect
of NeMo's batched decoding enters. README.md describes what is written.
"""

import copy
import itertools
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from make_golden import BEAM_OPTIONS, HERE, Lists, logging, nemo_logging, np, pack, soundfile, stack, torch
from nemo.collections.asr.models import ASRModel
from omegaconf import OmegaConf

WEIGHTS = {
    "tdt": "tdt",
    "rnnt": "rnnt",
    "ctc": "ctc",
    "hybrid": "hybrid",
    "hybrid_local": "hybrid",
    "causal": "causal",
}
ALPHA = 0.3
OFFSET = 100  # NeMo's ARPA files write token i as the character of code i + 100
KNOWN = 60  # tokens in lm.arpa: the models have 64 and 96, so some are unknown to it
DISCOUNT = 0.5
BETA = 1.5  # what a CTC beam adds a token
MODES = {  # NeMo's pruning_mode and blank_lm_score_mode
    "plain": ("late", "no_score"),
    "weighted": ("late", "lm_weighted_full"),
    "early": ("early", "no_score"),
    "early.weighted": ("early", "lm_weighted_full"),
}


def write_arpa(path: Path) -> None:
    """A trigram model by absolute discounting, of sentences drawn from a seeded chain."""
    rng = np.random.default_rng(5)
    likes = rng.integers(0, KNOWN, (KNOWN, 4))
    counts: list[Counter[tuple[Any, ...]]] = [Counter() for _ in range(3)]
    for _ in range(60):
        token, sentence = int(rng.integers(KNOWN)), ["<s>"]
        for _ in range(int(rng.integers(3, 12))):
            sentence.append(chr(token + OFFSET))
            token = int(likes[token, rng.integers(4)]) if rng.random() < 0.8 else int(rng.integers(KNOWN))
        sentence.append("</s>")
        for order, counter in enumerate(counts, 1):
            counter.update(tuple(sentence[i : i + order]) for i in range(len(sentence) - order + 1))
    del counts[0]["<s>",]
    for token in range(KNOWN):
        counts[0].setdefault((chr(token + OFFSET),), 1)
    counts[0]["<unk>",] = 3
    path.write_text("\n".join(_arpa_lines(counts)) + "\n", encoding="utf-8")


def _arpa_lines(counts: list[Counter[tuple[Any, ...]]]) -> list[str]:
    total = sum(counts[0].values())
    probability = {gram: count / total for gram, count in counts[0].items()}
    backoff: dict[tuple[Any, ...], float] = {}
    for counter in counts[1:]:
        for context, grams in itertools.groupby(sorted(counter), key=lambda gram: gram[:-1]):
            row = list(grams)
            whole = sum(counter[gram] for gram in row)
            for gram in row:
                probability[gram] = (counter[gram] - DISCOUNT) / whole
            seen = sum(probability[gram[1:]] for gram in row)
            backoff[context] = DISCOUNT * len(row) / whole / (1 - seen)
    lines = ["\\data\\", f"ngram 1={len(counts[0]) + 1}"]
    lines += [f"ngram {order}={len(counter)}" for order, counter in enumerate(counts[1:], 2)]
    for order, counter in enumerate(counts, 1):
        lines += ["", f"\\{order}-grams:"]
        if order == 1:
            lines.append(f"-99\t<s>\t{math.log10(backoff['<s>',]):.5f}")
        for gram in sorted(counter):
            line = f"{math.log10(probability[gram]):.5f}\t{' '.join(gram)}"
            lines.append(line + (f"\t{math.log10(backoff.get(gram, 1.0)):.5f}" if order < 3 else ""))
    return [*lines, "", "\\end\\"]


def transducer(model: torch.nn.Module, frames: list[torch.Tensor], beam: int, **fusion: object) -> Lists:
    """Greedy label looping (beam 0) or malsd_batch."""
    config = copy.deepcopy(model.cfg.decoding)
    OmegaConf.set_struct(config, False)
    config.tdt_include_token_duration = False
    if beam == 0:
        config.strategy = "greedy_batch"
        config.greedy = OmegaConf.create({"max_symbols": 10, **fusion})
    else:
        config.strategy = "malsd_batch"
        config.beam = OmegaConf.create({"beam_size": beam, **BEAM_OPTIONS, **fusion})
    kind = {"decoder_type": "rnnt"} if hasattr(model, "cur_decoder") else {}
    model.change_decoding_strategy(config, verbose=False, **kind)
    found = []
    for row in frames:
        length = torch.tensor([row.shape[2]])
        answer = model.decoding.rnnt_decoder_predictions_tensor(row, length, return_hypotheses=True)
        found.append(answer[0] if isinstance(answer[0], list) else [answer[0]])
    return found


def ctc(model: torch.nn.Module, logs: list[torch.Tensor], beam: int, **fusion: object) -> Lists:
    """beam_batch of the CTC head."""
    held = model.cfg.aux_ctc.decoding if hasattr(model, "ctc_decoding") else model.cfg.decoding
    config = copy.deepcopy(held)
    OmegaConf.set_struct(config, False)
    config.strategy = "beam_batch"
    options: dict[str, Any] = {"beam_size": beam, "return_best_hypothesis": False, "allow_cuda_graphs": False}
    options |= {"beam_beta": 0.0, "ngram_lm_alpha": 0.0, **fusion}
    config.beam = OmegaConf.create(options)
    kind = {"decoder_type": "ctc"} if hasattr(model, "ctc_decoding") else {}
    model.change_decoding_strategy(config, verbose=False, **kind)
    decoding = model.ctc_decoding if hasattr(model, "ctc_decoding") else model.decoding
    found = []
    for row in logs:
        answer = decoding.ctc_decoder_predictions_tensor(
            decoder_outputs=row, decoder_lengths=torch.tensor([row.shape[1]]), return_hypotheses=True
        )
        found.append(answer[0] if isinstance(answer[0], list) else [answer[0]])
    return found


@torch.inference_mode()
def searches(model: torch.nn.Module, golden: dict[str, np.ndarray], arpa: Path) -> dict[str, Lists]:
    """Every list that is kept, under its key."""
    lm = {"ngram_lm_model": str(arpa), "ngram_lm_alpha": ALPHA}
    lengths = golden["encoder_len"].tolist()

    def rows(name: str) -> list[torch.Tensor]:
        return [torch.tensor(row[:n])[None] for row, n in zip(golden[name], lengths, strict=True)]

    found = {}
    if hasattr(model, "joint"):
        frames = [row.transpose(1, 2) for row in rows("encoder")]
        for beam in (1, 2, 4, 8, 16):
            if f"malsd.k{beam}.tok" not in golden:
                found[f"malsd.k{beam}"] = transducer(model, frames, beam)
        found["greedy.lm"] = transducer(model, frames, 0, **lm)
        for beam, (name, (pruning, mode)) in itertools.product((1, 2, 4, 8, 16), MODES.items()):
            options = {"pruning_mode": pruning, "blank_lm_score_mode": mode, **lm}
            found[f"malsd.k{beam}.lm.{name}"] = transducer(model, frames, beam, **options)
    if "ctc_log_probs" in golden:
        for beam in (1, 2, 4, 8, 16):
            found[f"ctc_beam.k{beam}"] = ctc(model, rows("ctc_log_probs"), beam)
            found[f"ctc_beam.k{beam}.lm"] = ctc(model, rows("ctc_log_probs"), beam, **lm)
            found[f"ctc_beam.k{beam}.beta"] = ctc(model, rows("ctc_log_probs"), beam, beam_beta=BETA)
            found[f"ctc_beam.k{beam}.lm.beta"] = ctc(model, rows("ctc_log_probs"), beam, beam_beta=BETA, **lm)
    return found


@torch.inference_mode()
def encode(model: torch.nn.Module, recordings: list[str]) -> dict[str, np.ndarray]:
    """The recordings' encoder frames (and CTC log-probabilities), under the keys of the golden files."""
    model.preprocessor.featurizer.dither = 0.0
    rows = []
    for path in recordings:
        samples = torch.tensor(soundfile.read(path, dtype="float32")[0])[None]
        features, length = model.preprocessor(input_signal=samples, length=torch.tensor([samples.shape[1]]))
        rows.append(model.encoder(audio_signal=features, length=length)[0].transpose(1, 2))
    out = {}
    out["encoder"], out["encoder_len"] = stack(rows)
    head = getattr(model, "ctc_decoder", None if hasattr(model, "joint") else model.decoder)
    if head is not None:
        out["ctc_log_probs"], _ = stack([head(encoder_output=row.transpose(1, 2)) for row in rows])
    return out


def main() -> None:
    torch.set_num_threads(1)
    nemo_logging.setLevel(logging.ERROR)
    arpa = HERE / "lm.arpa"
    folder, recordings = (Path(sys.argv[1]), sys.argv[2:]) if len(sys.argv) > 2 else (None, [])
    if folder is None:
        write_arpa(arpa)
    for name, weights in WEIGHTS.items():
        if folder is not None and name != weights:
            continue
        model = ASRModel.restore_from(str(HERE / f"{weights}.nemo"), map_location="cpu").eval()
        if folder is None:
            with np.load(HERE / f"{name}.npz") as file:
                golden, result = dict(file), {}
        else:
            golden = result = encode(model, recordings)
        for key, lists in searches(model, golden, arpa).items():
            result |= {f"{key}.{part}": values for part, values in pack(lists).items()}
        np.savez_compressed((folder or HERE) / f"{name}.beams.npz", **result)
        print(name, len(result), flush=True)


if __name__ == "__main__":
    main()
