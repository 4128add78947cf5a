"""Searches a decoding graph over a CTC head: log-probabilities in, hypotheses with words out.

Uses Kaldi's costs and beams (`kernels.search.wfst`): one launch forward over all utterances and one back.
"""

from collections.abc import Sequence
from itertools import pairwise

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.search.fixed_point import ONE
from kernels.search.wfst import WfstLimits, grid_costs, wfst_links, wfst_tokens
from spool.domain.recognition import Hypothesis, WordFrames
from spool.domain.search.graph import GraphSearch
from worker.decode.recorder import LatticeRecorder
from worker.decode.wfst.graph import DecodingGraph, unit_columns
from worker.decode.wfst.lattice import word_lattice
from worker.decode.wfst.nbest import Utterance, WordPath, best_word_sequences

MOST_LINKS = 200_000
"""An utterance's lattice with more links is pruned further."""


def wfst_search(
    log_probs: mx.array,
    lengths: NDArray[np.int32],
    blank: int,
    graph: DecodingGraph,
    settings: GraphSearch,
    count: int,
    recorder: LatticeRecorder | None = None,
    *,
    blank_unit: int | None,
) -> list[list[Hypothesis]]:
    """Up to `count` different word sequences of each utterance, best first.

    log_probs: [B, T, V + 1], natural logs, `blank` last; lengths: [B] valid frames. blank_unit: as
    `CtcHead` has it. A score is minus the cost
    of the best path, graph and acoustic model together, without a sum over alignments. Tokens are that path's
    units without blanks and repeats; a token's time is its first frame, its confidence the probability there.
    recorder: gets the lattices that requests ask for, no wider than the settings' beam. An utterance with a
    non-finite frame, or that no path of the graph fits, has an empty list.
    """
    columns = unit_columns(graph.arrays, blank, blank_unit=blank_unit)
    probabilities = np.array(mx.take(log_probs.astype(mx.float32), mx.array(columns), axis=2))
    rows = [probabilities[row, :length] for row, length in enumerate(lengths.tolist())]
    finite = [bool(np.isfinite(row.max(1)).all() and not np.isnan(row).any()) for row in rows]
    kept = [
        frames_to_search(row, settings.blank_skip) if good else np.zeros(0, np.int64)
        for row, good in zip(rows, finite, strict=True)
    ]
    searched = np.zeros((len(rows), max(map(len, kept), default=0), probabilities.shape[2]), np.float32)
    for row, frames in enumerate(kept):
        searched[row, : len(frames)] = rows[row][frames]
    sizes = mx.array(np.array([len(frames) for frames in kept], np.int32))
    costs = grid_costs(mx.array(searched), settings.acoustic_scale)
    limits, reach = limits_of(settings), round(settings.lattice_beam * ONE)
    tokens = wfst_tokens(costs, sizes, graph.device, limits)
    lattices = wfst_links(costs, sizes, graph.device, tokens, reach, limits, MOST_LINKS)
    int_costs, base, dead = (
        np.array(costs),
        np.array(tokens.base, np.int64),
        np.array(tokens.report[:, 0]) != 0,
    )
    answers: list[list[Hypothesis]] = []
    for row, frames in enumerate(kept):
        if dead[row] or not finite[row]:
            answers.append([])
            continue
        size = len(frames)
        utterance = Utterance(int_costs[row, :size].astype(np.int64), base[row, : size + 1], limits.penalty)
        paths = best_word_sequences(lattices[row], graph, utterance, count, reach)
        answers.append([_hypothesis(path, graph, rows[row], frames, columns) for path in paths])
        prune = recorder.prunes[row] if recorder is not None and recorder.prunes else None
        if recorder is not None and prune is not None and paths:
            lattice_reach = min(round(prune * ONE), reach)
            recorder.graphs[row] = word_lattice(lattices[row], graph, utterance, frames, lattice_reach)
    return answers


def limits_of(settings: GraphSearch) -> WfstLimits:
    """The kernels' limits. A frame has at most four times `max_active` states, as in Kaldi's GPU decoder."""
    beam, penalty = round(settings.graph_beam * ONE), round(settings.unit_penalty * ONE)
    return WfstLimits(beam, settings.max_active, penalty, max(4 * settings.max_active, 1024))


def frames_to_search(log_probs: NDArray[np.float32], threshold: float) -> NDArray[np.int64]:
    """The frames of [T, V] (blank first) to search, as in WeNet's runtime: without those whose blank is more
    probable than `threshold`, except the last of them between two frames with the same unit."""
    if threshold >= 1:
        return np.arange(len(log_probs))
    silent = (np.exp(log_probs[:, 0]) > np.float32(threshold)).tolist()
    best = log_probs.argmax(1).tolist()
    kept: list[int] = []
    last, skipped = 0, -1
    for frame, label in enumerate(best):
        if silent[frame]:
            skipped = frame
            continue
        if label != 0 and skipped >= 0 and label == last:
            kept.append(skipped)
        last, skipped = label, -1
        kept.append(frame)
    return np.array(kept, np.int64)


def _hypothesis(
    path: WordPath,
    graph: DecodingGraph,
    log_probs: NDArray[np.float32],
    frames: NDArray[np.int64],
    columns: NDArray[np.int32],
) -> Hypothesis:
    """log_probs: [T, V], by input label; frames: those that were searched."""
    arrays = graph.arrays
    arcs = np.array([arc for _, arc in path.links], np.int64)
    labels = arrays.ilabel[arcs] if len(arcs) else np.zeros(0, np.int32)
    spoken = labels[labels > 0]  # one a searched frame
    new = (spoken != 1) & (spoken != np.concatenate([[0], spoken[:-1]]))
    times = frames[new]
    units = spoken[new] - 1
    confidences = np.exp(np.minimum(log_probs[times, units], 0))
    loops = (graph.sources[arcs] == arrays.next[arcs])[labels > 0] if len(arcs) else np.zeros(0, bool)
    is_word_unit = (spoken != 1) & ~loops  # every unit of the lexicon's spelling, repeated ones too
    words = _words(path, graph, spoken[is_word_unit] - 1, frames[is_word_unit], log_probs)
    return Hypothesis(
        tokens=tuple(columns[units].tolist()),
        score=-path.cost / ONE,
        times=tuple(times.tolist()),
        durations=(0,) * len(times),
        confidences=tuple(confidences.tolist()),
        spoken=words,
    )


def _words(
    path: WordPath,
    graph: DecodingGraph,
    units: NDArray[np.int32],
    times: NDArray[np.int64],
    log_probs: NDArray[np.float32],
) -> tuple[WordFrames, ...] | None:
    """The words with their first and last frames; None if the graph names none."""
    names = [graph.word(label) for label in path.words]
    if not all(names):
        return None
    sizes = split_units([graph.arrays.lexicon.get(graph.arrays.words[w], ()) for w in path.words], units)
    if sizes is None:  # without a lexicon, split evenly
        bounds = [round(i * len(units) / max(len(names), 1)) for i in range(len(names) + 1)]
        sizes = [end - begin for begin, end in pairwise(bounds)]
    words, at = [], 0
    for name, size in zip(names, sizes, strict=True):
        part = slice(at, at + max(size, 1)) if at < len(units) else slice(max(len(units) - 1, 0), len(units))
        when = times[part].tolist() or [0]
        heard = np.exp(np.minimum(log_probs[times[part], units[part]], 0)).tolist()
        words.append(WordFrames(name, when[0], when[-1] + 1, min(heard, default=0.0)))
        at += size
    return tuple(words)


def split_units(spellings: Sequence[Sequence[Sequence[int]]], units: NDArray[np.int32]) -> list[int] | None:
    """The number of units of each word, if the words' spellings (several per word) add up to `units`; the
    first split that fits, else None."""
    text = units.tolist()
    chosen: list[list[tuple[int, int]]] = [[(0, 0)]]  # of each word so far: where it may end, and its size
    for ways in spellings:
        ends = {
            begin + len(way): len(way)
            for begin, _ in reversed(chosen[-1])
            for way in reversed(ways)
            if text[begin : begin + len(way)] == list(way)
        }
        chosen.append(list(ends.items()))
    sizes, at = [], len(text)
    for options in chosen[:0:-1]:
        size = dict(options).get(at)
        if size is None:
            return None
        sizes.append(size)
        at -= size
    return sizes[::-1] if at == 0 else None
