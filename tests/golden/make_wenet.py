"""Makes `wenet/`: small WeNet models and what WeNet itself answered for two recordings each; and, restated
here, what its rescoring makes of a transducer's lists.

    python -m tests.golden.make_wenet DUMPS

DUMPS holds folders NAME (`final.pt`, `train.yaml`, `units.txt`) and NAME.npz, as `ops.accuracy.wenet.oracle`
reads them. Two are kept: symmetric with batch norm and one decoder, and causal with two decoders and RNN-T.

No dump holds an answer of `Transducer.transducer_attention_rescoring` (wenet/transducer/transducer.py), so
its formula is restated in 64-bit numpy over the dump's frames and lists: `Rescoring`. Its decoders are held
against the dump's own sums here.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from worker.models import TorchCheckpoint

Array = np.ndarray
OUT = Path(__file__).with_name("wenet")
MODELS = ("offline", "rnnt")
CHUNKED = ("chunk4.left2", "chunk7.left1")
ANSWERS = ("search", "transducer", "blank_penalty")
UTTERANCES = (2, 0)  # the shortest and the middle one
RESCORED = ("4,0.0,1.0", "4,0.3,0.7", "10,0.3,0.7")  # the beam's width, weights of CTC and RNN-T in it
WEIGHTS = (
    *((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.3, 0.7, 0.4)),
    *((1.0, 0.3, 0.7, 0.4), (0.25, 0.3, 0.7, 0.4), (0.5, 0.0, 0.0, 1.0), (2.0, 1.5, 0.1, 0.7)),
)
"""`attn_weight`, `ctc_weight`, `transducer_weight`, `reverse_weight`."""


def main(folder: str) -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    for name in MODELS:
        source, target = Path(folder) / name, OUT / name
        target.mkdir(parents=True)
        for file in ("train.yaml", "units.txt", "final.pt"):
            shutil.copyfile(source / file, target / file)
        dump = np.load(Path(folder) / f"{name}.npz")
        key = next(each for each in dump.files if each != "notes" and dump[each].dtype.kind == "U")
        answers = json.loads(str(dump[key]))
        if "transducer" in answers["utterances"][0]:
            _add_rescoring(Rescoring(target), dump, answers)
        made = {"answers": np.array(json.dumps(_kept(answers), ensure_ascii=False))}
        for index, row in enumerate(UTTERANCES):
            chunked = [f"encoder.{each}" for each in CHUNKED if f"u{row}.encoder.{each}" in dump]
            for part in ("wav", "feats", "encoder", "ctc", *chunked):
                made[f"u{index}.{part}"] = dump[f"u{row}.{part}"]
        np.savez_compressed(OUT / f"{name}.npz", allow_pickle=True, **made)
    size = sum(path.stat().st_size for path in OUT.rglob("*") if path.is_file())
    print(f"{OUT}: {size} bytes")


def _kept(answers: dict[str, Any]) -> dict[str, Any]:
    kept = []
    for row in UTTERANCES:
        utterance = answers["utterances"][row]
        kept.append({name: utterance[name] for name in ANSWERS if name in utterance})
        # Random weights say a label 64 times a frame where they may, which takes half a minute.
        kept[-1].get("transducer", {}).get("greedy", {}).pop("64", None)
    return {"utterances": kept}


def _add_rescoring(reference: "Rescoring", dump: Any, answers: dict[str, Any]) -> None:
    """Puts `rescoring` beside the transducer's lists: by list and weights the tokens and score of each
    hypothesis, best first."""
    for row in UTTERANCES:
        utterance, frames = answers["utterances"][row], dump[f"u{row}.encoder"].astype(np.float64)
        for each in utterance["search"]["prefix"]["10"][:3]:
            sums = [reference.attention(frames, each["tokens"], reverse=way) for way in (False, True)]
            np.testing.assert_allclose(sums, [each["left_to_right"], each["right_to_left"]], atol=1e-4)
        rescored: dict[str, Any] = {}
        for name in RESCORED:
            listed = utterance["transducer"]["beam"][name]
            parts = [reference.parts(frames, each["tokens"]) for each in listed]
            for weights in WEIGHTS:
                scores = [
                    combined(*part, each["score"], *weights) for part, each in zip(parts, listed, strict=True)
                ]
                order = sorted(range(len(listed)), key=lambda index: -scores[index])
                rescored.setdefault(name, {})[",".join(map(str, weights))] = [
                    {"tokens": listed[index]["tokens"], "score": scores[index]} for index in order
                ]
        utterance["transducer"]["rescoring"] = rescored


def combined(
    left: float,
    right: float,
    transducer: float,
    beam: float,
    attn_weight: float,
    ctc_weight: float,
    transducer_weight: float,
    reverse_weight: float,
) -> float:
    """The last lines of `transducer_attention_rescoring`, in their order."""
    score = left
    if reverse_weight > 0:
        score = score * (1 - reverse_weight) + right * reverse_weight
    return score * attn_weight + beam * ctc_weight + transducer * transducer_weight


class Rescoring:
    """Decoders, predictor and joint of a WeNet transducer, one hypothesis at a time, 64 bit."""

    def __init__(self, folder: Path) -> None:
        with (folder / "final.pt").open("rb") as file:
            checkpoint = TorchCheckpoint(file, str(file.name))
            self.weights = {
                name: np.array(checkpoint.read(name), np.float64)
                for name in checkpoint.shapes
                if not name.startswith("encoder.")
            }
        settings = yaml.safe_load((folder / "train.yaml").read_text())
        self.heads = settings["decoder_conf"]["attention_heads"]
        self.end = settings["output_dim"] - 1  # <sos> as well

    def parts(self, frames: Array, tokens: list[int]) -> tuple[float, float, float]:
        """Sums of both decoders and the log-likelihood of the transducer."""
        left, right = (self.attention(frames, tokens, reverse=way) for way in (False, True))
        return left, right, self.likelihood(frames, tokens)

    def attention(self, frames: Array, tokens: list[int], *, reverse: bool) -> float:
        """`_cal_attn_score` and the loops behind it: the sum over the tokens and their end."""
        side = "decoder.right_decoder" if reverse else "decoder.left_decoder"
        spoken = tokens[::-1] if reverse else tokens
        ids = [self.end, *spoken]
        width = frames.shape[1]
        x = self.weights[f"{side}.embed.0.weight"][ids] * np.sqrt(width) + positions(len(ids), width)
        causal = np.tril(np.ones((len(ids), len(ids)), bool))
        layer = 0
        while (at := f"{side}.decoders.{layer}") + ".norm1.weight" in self.weights:
            y = self._norm(f"{at}.norm1", x)
            x = x + self._attend(f"{at}.self_attn", y, y, causal)
            x = x + self._attend(f"{at}.src_attn", self._norm(f"{at}.norm2", x), frames, np.array(True))
            y = self._norm(f"{at}.norm3", x)
            inner = np.maximum(0, self._linear(f"{at}.feed_forward.w_1", y))
            x = x + self._linear(f"{at}.feed_forward.w_2", inner)
            layer += 1
        logs = log_softmax(self._linear(f"{side}.output_layer", self._norm(f"{side}.after_norm", x)))
        return float(sum(logs[at, token] for at, token in enumerate([*spoken, self.end])))

    def likelihood(self, frames: Array, tokens: list[int]) -> float:
        """`_cal_transducer_score`: minus the RNN-T loss (Graves 2012, equation 16) of one hypothesis."""
        encoded = self._linear("joint.enc_ffn", frames)[:, None]
        predicted = self._linear("joint.pred_ffn", self._predict([0, *tokens]))[None]
        logs = log_softmax(self._linear("joint.ffn_out", np.tanh(encoded + predicted)))
        alpha = np.full((len(frames), len(tokens) + 1), -np.inf)
        alpha[0, 0] = 0.0
        for t, u in np.ndindex(alpha.shape):
            if t:
                alpha[t, u] = np.logaddexp(alpha[t, u], alpha[t - 1, u] + logs[t - 1, u, 0])
            if u:
                alpha[t, u] = np.logaddexp(alpha[t, u], alpha[t, u - 1] + logs[t, u - 1, tokens[u - 1]])
        return float(alpha[-1, -1] + logs[-1, -1, 0])

    def _predict(self, tokens: list[int]) -> Array:
        """LSTM layers in torch's gate order (i, f, g, o), and the projection."""
        x, layer = self.weights["predictor.embed.weight"][tokens], 0
        while f"predictor.rnn.weight_ih_l{layer}" in self.weights:
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            own, back, *biases = (self.weights[f"predictor.rnn.{name}_l{layer}"] for name in names)
            hidden = cell = np.zeros(back.shape[1])
            outputs = []
            for row in x:
                i, f, g, o = np.split(own @ row + back @ hidden + sum(biases), 4)
                cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
                hidden = sigmoid(o) * np.tanh(cell)
                outputs.append(hidden)
            x, layer = np.stack(outputs), layer + 1
        return self._linear("predictor.projection", x)

    def _attend(self, name: str, queries: Array, keys: Array, mask: Array) -> Array:
        q, k, v = (
            self._linear(f"{name}.linear_{part}", x).reshape(len(x), self.heads, -1).transpose(1, 0, 2)
            for part, x in (("q", queries), ("k", keys), ("v", keys))
        )
        products = np.where(mask, q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]), -np.inf)
        heard = np.exp(log_softmax(products)) @ v
        return self._linear(f"{name}.linear_out", heard.transpose(1, 0, 2).reshape(len(queries), -1))

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def positions(count: int, width: int) -> Array:
    angles = np.arange(count)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(count, width)


def log_softmax(x: Array) -> Array:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


if __name__ == "__main__":
    main(sys.argv[1])
