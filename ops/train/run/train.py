"""The training run: TDT and CTC losses together, a wall-clock budget, checkpoints it can be taken up from.

Everything random in step n follows from the seed and n, so a run that was stopped and taken up again gives
the weights of one that was not, as long as its schedule is set in steps; a schedule in minutes follows the
clock. Knows batches and the network; knows no audio.
"""

from __future__ import annotations

import ctypes
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ops.train.data.batches import Batch, BatchOptions, batches
from ops.train.data.mixture import Mixture
from ops.train.model.joint_scores import joint_scores
from ops.train.model.network import Network, Shape
from ops.train.model.tdt_loss import lattice_log_likelihood
from ops.train.model.weights import load_into
from ops.train.run.team import Team


@dataclass(frozen=True)
class TrainOptions:
    minutes: float = 60.0  # wall clock of all runs of this folder together
    steps: int = 0  # when not 0, the schedule and the end instead of the minutes
    end: float = 1.0  # how much of the schedule is gone through
    rate: float = 1.0e-3
    warmup: int = 200
    ctc: float = 0.3  # share of the CTC loss
    heard_by_tdt: float = (
        1.0  # share of a batch's utterances that the TDT loss, the dearer one, is taken over
    )
    sigma: float = 0.02
    dropout: float = 0.0  # the few hours of an hour's training are heard too seldom to be learnt by heart
    decay: float = 0.999  # of the averaged weights, which are the ones exported
    stored: bool = False  # batch norm by the stored statistics, as when transcribing, instead of the batch's
    save_minutes: float = 4.0
    threads: int = 1
    device: str = "cpu"
    batches: BatchOptions = field(default_factory=BatchOptions)


def keep_memory() -> None:
    """Tells glibc to keep freed memory: giving it back and taking it anew doubled the time of a step."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        trim_threshold, top_pad, mmap_max = -1, -2, -4
        for setting, value in ((mmap_max, 0), (trim_threshold, 2**31 - 1), (top_pad, 1 << 28)):
            libc.mallopt(setting, value)


def losses(network: Network, batch: Batch, sigma: float, share: float = 1.0) -> tuple[Tensor, Tensor]:
    """CTC and TDT loss, the mean over utterances of nats per label (and per tenth frame)."""
    with torch.autocast(batch.features.device.type, dtype=torch.bfloat16):
        frames, lengths = network.encoder(batch.features, batch.frames)
        scores = network.ctc(frames.transpose(1, 2))
    log_probs = scores.float().log_softmax(1).permute(2, 0, 1)
    blank = network.shape.vocabulary
    ctc = F.ctc_loss(
        log_probs, batch.targets, lengths, batch.labels, blank, reduction="none", zero_infinity=True
    )
    size = batch.labels + lengths / 10 + 1
    some = torch.randperm(len(size))[: math.ceil(share * len(size))].to(size.device)
    tdt = -_tdt(network, frames.float()[some], batch.rows(some), lengths[some], sigma)
    return (ctc / size).mean(), (tdt / size[some]).mean()


def _tdt(network: Network, frames: Tensor, batch: Batch, lengths: Tensor, sigma: float) -> Tensor:
    joint, durations = network.joint, network.shape.durations
    outputs = joint.pred(network.prediction(batch.targets))
    sizes = list(zip(lengths.tolist(), (batch.labels + 1).tolist(), strict=True))
    parts = (joint.enc(frames), outputs, joint.out.weight, joint.out.bias, batch.targets, sizes)
    blank, label, spans = joint_scores(*parts, network.shape.vocabulary, torch.bfloat16)
    spans = spans.permute(3, 0, 1, 2)
    return lattice_log_likelihood(
        blank - sigma + spans, label - sigma + spans, lengths, batch.labels, durations
    )


def optimisers(network: Network, rate: float) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the matrices of the encoder's layers, AdamW for all else.

    Muon's steps are scaled to the size of AdamW's (Liu et al. 2025, "Muon is scalable for LLM training"),
    so that one rate does for both.
    """
    inner, matrices, vectors = [], [], []
    for name, parameter in network.named_parameters():
        if parameter.ndim <= 1:
            vectors.append(parameter)
        elif parameter.ndim == 2 and ".layers." in name and "pos_bias" not in name:
            inner.append(parameter)
        else:
            matrices.append(parameter)
    groups = [{"params": matrices, "weight_decay": 1e-2}, {"params": vectors, "weight_decay": 0.0}]
    return [
        torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=True),
        torch.optim.Muon(inner, lr=rate, weight_decay=1e-2, adjust_lr_fn="match_rms_adamw"),
    ]


class Run:
    """One training run and its folder."""

    def __init__(
        self,
        folder: Path,
        shape: Shape,
        options: TrainOptions,
        init: Path | None,
        team: Team = Team(),  # noqa: B008  (frozen)
    ) -> None:
        torch.manual_seed(options.batches.seed)
        self.folder, self.options, self.team = folder, options, team
        self.network = Network(shape).to(options.device)
        if init is not None:
            load_into(self.network, init)
        for part in self.network.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = options.dropout
        self.optimisers = optimisers(self.network, options.rate)
        self.average = {k: v.detach().clone().float() for k, v in self.network.state_dict().items()}
        self.step, self.seconds, self.audio = 0, 0.0, 0.0
        self.round, self.within = team.rank, 0

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"

    def save(self) -> None:
        places = self.team.gathered((self.round, self.within))
        if self.team.rank:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        place = {"places": places, **{k: getattr(self, k) for k in ("step", "seconds", "audio")}}
        state = {
            "network": self.network.state_dict(),
            "optimisers": [o.state_dict() for o in self.optimisers],
        }
        torch.save({**state, "average": self.average, "place": place}, self.checkpoint.with_suffix(".part"))
        self.checkpoint.with_suffix(".part").replace(self.checkpoint)

    def take_up(self) -> bool:
        """Continues from the folder's checkpoint; False where there is none."""
        if not self.checkpoint.exists():
            return False
        state = torch.load(self.checkpoint, map_location=self.options.device, weights_only=True)
        self.network.load_state_dict(state["network"])
        for optimiser, kept in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(kept)
        self.average = state["average"]
        place = state["place"]
        self.step, self.seconds, self.audio = place["step"], place["seconds"], place["audio"]
        if len(place["places"]) == self.team.size:
            self.round, self.within = place["places"][self.team.rank]
        else:  # taken up by more or fewer processes
            self.round = max(round_ for round_, _ in place["places"]) + 1 + self.team.rank
        return True

    def progress(self) -> float:
        """From 0 to 1, by steps where they are given, else by the clock."""
        if self.options.steps:
            return self.step / self.options.steps
        return self.seconds / (self.options.minutes * 60)

    def learn(self, batch: Batch) -> tuple[float, float]:
        """One step; gives its CTC and its TDT loss."""
        torch.manual_seed(self.options.batches.seed * 1_000_003 + self.step)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, self.progress())))
        rate = self.options.rate * min(1.0, (self.step + 1) / self.options.warmup) * max(0.01, cosine)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
        ctc, tdt = losses(
            self.network, batch.to(self.options.device), self.options.sigma, self.options.heard_by_tdt
        )
        (self.options.ctc * ctc + (1 - self.options.ctc) * tdt).backward()
        self.team.average_gradients(self.network.parameters())
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for optimiser in self.optimisers:
            if torch.isfinite(norm):
                optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.step += 1
        self._average()
        return ctc.item(), tdt.item()

    def _fix_statistics(self) -> None:
        """Batches hold utterances of one length, and short ones' statistics are not those of long ones."""
        for name, part in self.network.named_modules():
            if isinstance(part, torch.nn.BatchNorm1d):
                part.running_mean.copy_(self.average[f"{name}.running_mean"])
                part.running_var.copy_(self.average[f"{name}.running_var"])
                part.eval()

    @torch.no_grad()
    def _average(self) -> None:
        decay = min(self.options.decay, (1 + self.step) / (20 + self.step))
        values = [value.float() for value in self.network.state_dict().values()]
        torch._foreach_lerp_(list(self.average.values()), values, 1 - decay)

    def work(
        self,
        mixture: Mixture,
        encode: Callable[[str], list[int]],
        *,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Trains to the end of the schedule, or until asked to stop; saves on the way and at the end."""
        torch.set_num_threads(self.options.threads)
        keep_memory()
        self.network.train()
        if self.options.stored:
            self._fix_statistics()
        before, saved, sums, count = time.monotonic(), self.seconds, [0.0, 0.0], 0
        source = batches(mixture, encode, self.options.batches, self.round, self.within, self.team.size)
        while self.progress() < self.options.end and not any(self.team.mean([until()])):
            self.round, self.within, batch = next(source)
            ctc, tdt = self.learn(batch)
            self.within += 1
            now = time.monotonic()
            # The same for all, so that they take the same steps.
            took, heard = self.team.mean([now - before, float(batch.frames.sum()) / 100])
            before = now
            self.seconds, self.audio = self.seconds + took, self.audio + heard * self.team.size
            sums, count = [sums[0] + ctc, sums[1] + tdt], count + 1
            if count == 50:
                self._report(sums[0] / count, sums[1] / count)
                sums, count = [0.0, 0.0], 0
            if self.seconds - saved > self.options.save_minutes * 60:
                self.save()
                saved = self.seconds
        source.close()
        self.save()

    def _report(self, ctc: float, tdt: float) -> None:
        if self.team.rank:
            return
        rate = self.optimisers[0].param_groups[0]["lr"]
        clock, heard = self.seconds / 60, self.audio / 3600
        speed = self.audio / max(self.seconds, 1e-9)
        print(
            f"{clock:6.1f} min  step {self.step}  ctc {ctc:.3f}  tdt {tdt:.3f}  rate {rate:.1e}  "
            f"{heard:.1f} h heard  {speed:.0f} x",
            flush=True,
        )
