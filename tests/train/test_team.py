"""Two processes that train one network."""

from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest
import torch

from ops.train.data.batches import Batch, collated
from ops.train.data.features import MELS
from ops.train.model.network import Shape
from ops.train.run.team import Team, together
from ops.train.run.train import Run, TrainOptions

SHAPE = Shape(width=16, layers=1, heads=2, channels=4, prediction=8, joint=8)
OPTIONS = TrainOptions(steps=4, warmup=1, rate=1e-3)


def batch_of(rank: int) -> Batch:
    rng = np.random.default_rng(rank)
    return collated([(rng.standard_normal((120 + 40 * rank, MELS)).astype(np.float32), [3, 4 + rank])])


def two_steps(team: Team, stop: Event, folder: Path) -> None:
    torch.set_num_threads(1)  # sums in bfloat16 depend on it
    run = Run(folder, SHAPE, OPTIONS, None, team)
    for _ in range(2):
        run.learn(batch_of(team.rank))
    assert team.mean([float(team.rank)]) == [0.5 if team.size == 2 else 0.0]
    one = torch.nn.Parameter(torch.zeros(3))
    one.grad = torch.full((3,), float(team.rank + 1))
    team.average_gradients([one])
    assert one.grad.tolist() == [1.5 if team.size == 2 else 1.0] * 3
    assert team.gathered(team.rank) == list(range(team.size))
    torch.save(dict(run.network.named_parameters()), folder / f"{team.rank}.pt")
    run.save()


def failing(team: Team, stop: Event) -> None:
    if team.rank == 1:
        raise ValueError("the second has no batches")


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)


def test_two_processes_take_the_steps_of_one_with_both_batches(tmp_path: Path) -> None:
    together(2, two_steps, (tmp_path,))
    torch.set_num_threads(1)
    first, second = (weights(tmp_path / f"{rank}.pt") for rank in (0, 1))
    alone = Run(tmp_path, SHAPE, OPTIONS, None)

    class Both(Team):
        """The mean of both batches' gradients, without processes."""

        def average_gradients(self, parameters: object) -> None:
            gradients = [p.grad.clone() for p in alone.network.parameters()]
            alone.network.zero_grad()
            Run.learn(other, batch_of(1))
            for p, a, b in zip(alone.network.parameters(), gradients, grads, strict=True):
                p.grad = (a + b) / 2

    class Kept(Team):
        """Keeps its gradients and leaves none, so that no step is taken."""

        def average_gradients(self, parameters: object) -> None:
            grads[:] = [p.grad.clone() for p in other.network.parameters()]
            for p in other.network.parameters():
                p.grad.fill_(torch.nan)

    grads: list[torch.Tensor] = []
    other = Run(tmp_path, SHAPE, OPTIONS, None, Kept())
    for _ in range(2):
        other.network.load_state_dict(alone.network.state_dict())
        other.step = alone.step
        alone.team = Both()
        alone.learn(batch_of(0))
    for name, _value in alone.network.named_parameters():
        assert torch.equal(first[name], second[name]), name
    # Steps are of 1e-3; sums in bfloat16 round differently, and Adam makes much of the smallest gradients.
    near = [(first[name] - value).abs() < 1e-4 for name, value in alone.network.named_parameters()]
    assert torch.cat([each.flatten() for each in near]).float().mean() > 0.9


def test_places_are_kept_for_each_process(tmp_path: Path) -> None:
    together(2, two_steps, (tmp_path,))
    for rank in (0, 1):
        run = Run(tmp_path, SHAPE, OPTIONS, None, Team(rank, 2))
        assert run.take_up()
        assert (run.step, run.round, run.within) == (2, rank, 0)
    alone = Run(tmp_path, SHAPE, OPTIONS, None)
    assert alone.take_up()
    assert alone.round == 2  # none of theirs is heard again


def test_a_failure_in_one_process_is_raised(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the second has no batches"):
        together(2, failing, ())
