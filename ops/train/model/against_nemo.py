"""Our network, features and loss against NeMo's own, by hand where NeMo is installed:

    python -m ops.train.model.against_nemo

Prints the largest difference of each and ends with an error when one is too large. NeMo is asked for here and
nowhere else in the training code.
"""

from __future__ import annotations

import logging
import sys

import numpy as np
import torch
from torch import Tensor

from ops.train.data.features import log_mel, normalise
from ops.train.model.network import Encoder, Shape
from ops.train.model.tdt_loss import tdt_log_likelihood


def _difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


def features() -> float:
    """Relative difference of normalised log-mels of noise with a tone."""
    from nemo.collections.asr.modules import AudioToMelSpectrogramPreprocessor

    theirs = AudioToMelSpectrogramPreprocessor(
        features=80, n_fft=512, window_size=0.025, window_stride=0.01, dither=0.0, pad_to=0, log=True
    )
    rng = np.random.default_rng(1)
    time = np.arange(40_123) / 16_000
    audio = (0.1 * np.sin(2500 * time) + 0.01 * rng.standard_normal(len(time))).astype(np.float32)
    theirs.featurizer.eval()
    found, length = theirs(input_signal=torch.from_numpy(audio)[None], length=torch.tensor([len(audio)]))
    ours = torch.from_numpy(normalise(log_mel(audio)))
    assert ours.shape[0] == int(length[0]), (ours.shape, length)
    return _difference(ours, found[0, :, : len(ours)].T)


def encoder() -> float:
    """Relative difference of encoder outputs under the same random weights, two lengths in a batch."""
    from nemo.collections.asr.modules import ConformerEncoder

    torch.manual_seed(1)
    shape = Shape()
    theirs = ConformerEncoder(
        feat_in=80,
        n_layers=shape.layers,
        d_model=shape.width,
        subsampling="dw_striding",
        subsampling_factor=8,
        subsampling_conv_channels=shape.channels,
        ff_expansion_factor=shape.expansion,
        self_attention_model="rel_pos",
        n_heads=shape.heads,
        conv_kernel_size=shape.kernel,
        xscaling=False,
    ).eval()
    ours = Encoder(shape).eval()
    for name, value in theirs.state_dict().items():
        if "pos_bias" in name or "running_mean" in name or name.endswith("batch_norm.bias"):
            value.normal_(0.0, 0.3)
        elif "running_var" in name:
            value.uniform_(0.5, 2.0)
    ours.load_state_dict({k: v for k, v in theirs.state_dict().items() if not k.startswith("pos_enc")})
    lengths = torch.tensor([431, 300])
    x = torch.randn(2, 431, 80)
    x[1, 300:] = 0.0
    with torch.no_grad():
        expected, expected_lengths = theirs(audio_signal=x.transpose(1, 2), length=lengths)
        found, found_lengths = ours(x, lengths)
    assert torch.equal(expected_lengths, found_lengths)
    rows = range(len(lengths))
    return max(_difference(found[r, : found_lengths[r]], expected[r, :, : found_lengths[r]].T) for r in rows)


def loss() -> float:
    """Relative difference of the TDT loss and of its gradient, NeMo's plain PyTorch form."""
    from nemo.collections.asr.losses.rnnt_pytorch import TDTLossPytorch

    torch.manual_seed(2)
    durations, sigma = [0, 1, 2, 3, 4], 0.05
    frames, labels = torch.tensor([13, 9, 5]), torch.tensor([6, 4, 0])
    targets = torch.randint(0, 7, (3, 6))
    ours = torch.randn(3, 13, 7, 8 + 5, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    torch.Tensor.cuda = lambda self: self  # its reference form asks for a GPU that it does not need
    reference = TDTLossPytorch(blank=7, durations=durations, reduction="sum", sigma=sigma)
    expected = reference(theirs, targets, frames, labels)
    computed = -tdt_log_likelihood(ours, targets, frames, labels, durations, sigma).sum()
    expected.backward()
    computed.backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    return max(_difference(computed, expected), _difference(ours.grad, theirs.grad))


def main() -> None:
    logging.disable(logging.CRITICAL)
    failed = False
    for check, largest in ((features, 1e-4), (encoder, 1e-5), (loss, 1e-5)):
        found = check()
        failed |= not found <= largest
        print(f"{check.__name__}: relative difference {found:.1e}, at most {largest:.0e} wanted")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
