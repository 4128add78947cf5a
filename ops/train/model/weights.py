"""The three ways our weights are named: the network's own, NeMo's (the exported model), and the pilot's.

Knows names and files; knows no training.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from ops.train.model.network import Network

# Prefixes, NeMo's on the right; the encoder has one name everywhere.
NEMO = {
    "ctc.": "ctc_decoder.decoder_layers.0.",
    "prediction.embed.": "decoder.prediction.embed.",
    "prediction.lstm.": "decoder.prediction.dec_rnn.lstm.",
    "joint.enc.": "joint.enc.",
    "joint.pred.": "joint.pred.",
    "joint.out.": "joint.joint_net.2.",
}
PILOT = {
    "prediction.embed.": "pred.embed.",
    "prediction.lstm.": "pred.lstm.",
    "joint.enc.": "jenc.",
    "joint.pred.": "jpred.",
    "joint.out.": "jout.",
}


def renamed(tensors: dict[str, Tensor], prefixes: dict[str, str]) -> dict[str, Tensor]:
    """The tensors with every matching prefix on the left replaced by the one on the right."""
    out = {}
    for name, tensor in tensors.items():
        prefix = next((p for p in prefixes if name.startswith(p)), "")
        out[prefixes.get(prefix, "") + name[len(prefix) :]] = tensor
    return out


def load_into(network: Network, path: Path) -> None:
    """Fills the network from a safetensors file under NeMo's or the pilot's names. Raises on a gap."""
    tensors = load_file(path)
    names = PILOT if any(name.startswith("jout.") for name in tensors) else NEMO
    ours = renamed(tensors, {theirs: mine for mine, theirs in names.items()})
    wanted = network.state_dict()
    picked = {name: ours[name].to(wanted[name].dtype) for name in wanted if name in ours}
    missing = [name for name in wanted if name not in picked and not name.endswith("num_batches_tracked")]
    if missing:
        raise KeyError(f"{path} lacks {len(missing)} tensors of this network, the first {missing[0]}")
    network.load_state_dict(picked, strict=False)


def exported(network_state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state under NeMo's names, in half precision, without counters."""
    kept = {name: t for name, t in network_state.items() if not name.endswith("num_batches_tracked")}
    return {name: t.detach().cpu().to(torch.float16).contiguous() for name, t in renamed(kept, NEMO).items()}
