"""From voice prints to speakers: agglomerative clustering, then reassignment and merging by centroids.

Average linkage by cosine distance needs only the distances of the clusters' means: for prints of length one,
the mean of all pairs' products is the product of the two means. So clusters can be clustered further, losing
only the choice of earlier merges, which bounds the memory: a long recording's windows are first merged finely
within stretches of `_MOST`, and then as a whole.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
Merge = tuple[float, int, int]
"""Height (cosine distance) and two items, one of each cluster that is merged."""

_MOST = 2000
"""Items whose similarities are in memory at once: 32 MB."""
_FEWEST_PER_BLOCK = 32


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Thresholds, and the allowed number of speakers."""

    cut: float = 0.40
    """Cosine distance up to which clusters are first joined."""
    merge: float = 0.85
    """Cosine of two centroids from which on they are merged."""
    smallest: int = 4
    """The fewest windows of a cluster that is kept."""
    min_speakers: int = 1
    max_speakers: int = 99

    def __post_init__(self) -> None:
        if not 1 <= self.min_speakers <= self.max_speakers:
            raise InvalidRequest(
                f"speakers: between {self.min_speakers} and {self.max_speakers} is not possible; "
                "the least must be 1 or more, and not above the most"
            )


def cluster_prints(prints: Floats, options: ClusterOptions) -> Labels:
    """The speaker of each row of `prints` `[N, D]` (length one), numbered from 0 without gaps."""
    if len(prints) < 2:
        return np.zeros(len(prints), np.int64)
    known = options.min_speakers > 1
    labels = _cut(prints, height=min(options.cut, 0.3) if known else options.cut)
    labels = _settle(prints, _drop_small(prints, labels, options.smallest), rounds=5)
    if len(np.unique(labels)) < options.min_speakers:
        return _cut(prints, count=options.min_speakers)
    while True:
        names, centroids = centroids_of(prints, labels)
        cosines = centroids @ centroids.T
        np.fill_diagonal(cosines, -1)
        enough = cosines.max() < options.merge and len(names) <= options.max_speakers
        if len(names) <= options.min_speakers or enough:
            return np.unique(labels, return_inverse=True)[1]
        kept, gone = np.unravel_index(cosines.argmax(), cosines.shape)
        labels = _settle(prints, np.where(labels == names[gone], names[kept], labels), rounds=1)


def centroids_of(prints: Floats, labels: Labels) -> tuple[Labels, Floats]:
    """The labels in use, ascending, and the mean print of each at length one, `[S, D]`."""
    names = np.unique(labels)
    means = np.stack([prints[labels == name].mean(0) for name in names])
    return names, means / np.linalg.norm(means, axis=1, keepdims=True)


def _settle(prints: Floats, labels: Labels, rounds: int) -> Labels:
    """Reassign each print to its nearest centroid, `rounds` times or until nothing changes."""
    for _ in range(rounds):
        names, centroids = centroids_of(prints, labels)
        moved = names[(prints @ centroids.T).argmax(1)]
        if (moved == labels).all():
            break
        labels = moved
    return labels


def _drop_small(prints: Floats, labels: Labels, smallest: int) -> Labels:
    """Reassign the prints of clusters below `smallest` to the nearest other; the largest is always kept."""
    names, counts = np.unique(labels, return_counts=True)
    large = names[counts >= smallest] if counts.max() >= smallest else names[[counts.argmax()]]
    stays = np.isin(labels, large)
    _, centroids = centroids_of(prints[stays], labels[stays])
    return np.where(stays, labels, large[(prints @ centroids.T).argmax(1)])


def _cut(prints: Floats, height: float | None = None, count: int = 1) -> Labels:
    """Labels of the dendrogram's clusters below `height`, or of its last `count` clusters."""
    items = prints.astype(np.float64)
    items /= np.maximum(np.linalg.norm(items, axis=1, keepdims=True), 1e-12)
    weights: NDArray[np.float64] = np.ones(len(items))
    labels: Labels = np.arange(len(items))
    while len(items) > _MOST:
        blocks = -(-len(items) // _MOST)
        share = max(_MOST // blocks, _FEWEST_PER_BLOCK)
        merges: list[Merge] = []
        for first in range(0, len(items), _MOST):
            block = slice(first, first + _MOST)
            fine = _average_linkage(items[block], weights[block])
            fine = fine[: max(0, len(items[block]) - share)]
            merges += [(distance, first + a, first + b) for distance, a, b in fine]
        groups = _groups(merges, len(items))
        total = np.bincount(groups, weights).astype(np.float64)
        sums = np.zeros((len(total), items.shape[1]))
        np.add.at(sums, groups, items * weights[:, None])
        items, weights = sums / total[:, None], total
        labels = groups[labels]
    tree = _average_linkage(items, weights)
    below = tree[: len(items) - count] if height is None else [merge for merge in tree if merge[0] <= height]
    return _groups(below, len(items))[labels]


def _average_linkage(items: NDArray[np.float64], weights: NDArray[np.float64]) -> list[Merge]:
    """All merges of `items` `[N, D]` (means of `weights` prints each), lowest first.

    By chains of nearest neighbours (Murtagh 1983): quadratic, and for average linkage the same tree as
    merging the closest pair each time.
    """
    similar = items @ items.T
    np.fill_diagonal(similar, -np.inf)
    weights = weights.copy()
    merges: list[Merge] = []
    chain: list[int] = []
    alive = np.ones(len(items), bool)
    while len(merges) < len(items) - 1:
        if not chain:
            chain.append(int(alive.argmax()))
        top = chain[-1]
        row = similar[top]
        nearest = int(row.argmax())
        if len(chain) == 1 or row[chain[-2]] < row[nearest]:
            chain.append(nearest)
            continue
        other = chain[-2]
        del chain[-2:]
        merges.append((float(1 - row[other]), other, top))
        mean = weights[other] * similar[other] + weights[top] * row
        mean /= weights[other] + weights[top]
        mean[other] = -np.inf
        similar[other] = similar[:, other] = mean
        similar[top] = similar[:, top] = -np.inf
        weights[other] += weights[top]
        alive[top] = False
    return sorted(merges)


def _groups(merges: list[Merge], count: int) -> Labels:
    """A label from 0 for each of `count` items, the same for items that `merges` connect."""
    parents = list(range(count))

    def root(item: int) -> int:
        while parents[item] != item:
            parents[item] = item = parents[parents[item]]
        return item

    for _, a, b in merges:
        parents[root(a)] = root(b)
    return np.unique([root(item) for item in range(count)], return_inverse=True)[1]
