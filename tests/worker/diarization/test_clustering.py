"""Voice prints to speakers, on points whose speakers are known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.diarization import ClusterOptions, cluster_prints, clustering


def voices(speakers: int, each: int, spread: float = 0.05) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Non-negative prints of length one around `speakers` directions, in mixed order."""
    chance = np.random.default_rng(speakers)
    labels = chance.permutation(np.repeat(np.arange(speakers), each))
    points = np.eye(speakers, 64)[labels] + np.abs(chance.normal(0, spread, (len(labels), 64)))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32), labels


def same(a: NDArray[np.int64], b: NDArray[np.int64]) -> bool:
    """Whether both part the items alike, whatever the numbers are."""
    return len(set(zip(a.tolist(), b.tolist(), strict=True))) == len(set(a.tolist())) == len(set(b.tolist()))


@pytest.mark.parametrize("speakers", [1, 2, 12])
def test_speakers_are_counted_and_parted(speakers: int) -> None:
    prints, labels = voices(speakers, 30)
    assert same(cluster_prints(prints, ClusterOptions()), labels)


def test_many_windows_are_clustered_in_blocks_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    prints, labels = voices(5, 100)
    monkeypatch.setattr(clustering, "_MOST", 64)
    monkeypatch.setattr(clustering, "_FEWEST_PER_BLOCK", 8)
    assert same(cluster_prints(prints, ClusterOptions()), labels)


def test_merges_are_the_closest_pair_s_each_time() -> None:
    """Against average linkage by its definition: closest first by the mean distance of all pairs."""
    prints, _ = voices(4, 6, spread=0.4)
    clusters = [[index] for index in range(len(prints))]
    heights = []
    distance = 1 - prints.astype(float) @ prints.T.astype(float)
    while len(clusters) > 1:
        pairs = [(a, b) for a in range(len(clusters)) for b in range(a)]
        means = [distance[np.ix_(clusters[a], clusters[b])].mean() for a, b in pairs]
        heights.append(min(means))
        a, b = pairs[int(np.argmin(means))]
        clusters[b] += clusters.pop(a)
    tree = clustering._average_linkage(prints.astype(float), np.ones(len(prints)))
    np.testing.assert_allclose([merge[0] for merge in tree], heights, atol=1e-12)


def test_bounds_are_kept() -> None:
    prints, _ = voices(6, 20)
    assert len(set(cluster_prints(prints, ClusterOptions(max_speakers=3)).tolist())) == 3
    assert len(set(cluster_prints(prints, ClusterOptions(min_speakers=9)).tolist())) == 9


def test_few_windows() -> None:
    prints, _ = voices(2, 1)
    assert cluster_prints(prints[:0], ClusterOptions()).tolist() == []
    assert cluster_prints(prints[:1], ClusterOptions()).tolist() == [0]
    assert cluster_prints(prints, ClusterOptions(min_speakers=5, max_speakers=5)).tolist() in ([0, 1], [1, 0])


@pytest.mark.parametrize(("least", "most"), [(0, 3), (3, 2)])
def test_impossible_bounds_are_refused(least: int, most: int) -> None:
    with pytest.raises(InvalidRequest, match=f"between {least} and {most}"):
        ClusterOptions(min_speakers=least, max_speakers=most)
