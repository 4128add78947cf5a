"""`spool-worker transcribe --decoder wfst` against kaldi-decoder over the same log-probabilities; what is
refused; and the same through `rescore`."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import soundfile

from ops.accuracy.wenet.kaldi import fast_path, kaldi_graph, lattice_paths
from ops.testbed.invoking import invoke
from spool.domain.search.graph import GraphSearch
from spool.errors import InvalidRequest
from spool.graphs import read_graph
from tests.worker.decode.wfst.graphs import made_graph
from tests.worker.models.language.fixtures import random_tensors, write_language_model
from worker.cli.main import main
from worker.decode import check_options
from worker.decode.search import search
from worker.models import LstmLanguageModel, SearchOptions, load_model, load_reader

pytestmark = pytest.mark.integration  # a graph is built in a process of its own
GOLDEN = Path(__file__).parents[3] / "golden"
MODEL = GOLDEN / "wenet" / "rnnt"
NEAR = 2e-3
MOST_PATHS = 500


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    units = load_model(MODEL).tokenizer.pieces
    return made_graph(units, tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    dump, folder = np.load(GOLDEN / "wenet" / "rnnt.npz"), tmp_path_factory.mktemp("wav")
    paths = [folder / f"{index}.wav" for index in range(2)]
    for index, path in enumerate(paths):
        soundfile.write(path, dump[f"u{index}.wav"].astype(np.int16), 16_000)
    return paths


def printed(*arguments: object) -> list[dict[str, Any]]:
    outcome = invoke(main, ["transcribe", *map(str, arguments)])
    assert outcome.exit_code == 0, outcome.output
    rows: list[dict[str, Any]] = json.loads(outcome.stdout)
    return rows


def log_probs_of(recordings: list[Path]) -> list[np.ndarray]:
    """Of units, blank first, each recording alone."""
    model, rows = load_model(MODEL), []
    for path in recordings:
        samples, _ = soundfile.read(path, dtype="float32")
        encoded = model.encode([samples])
        heard = np.array(model.heads["ctc"].log_probs(encoded.frames))[0, : encoded.lengths[0]]
        rows.append(np.concatenate([heard[:, -1:], heard[:, 1:-1]], axis=1))
    return rows


def test_the_command_lists_what_kaldi_lists(graph: Path, recordings: list[Path]) -> None:
    options = ["--model", MODEL, "--no-chunk", "--decoder", "wfst", "--graph", graph, "--format", "json"]
    # Kaldi's determinised lattice of a model as unsure as this one grows without bounds in a wider beam.
    rows = printed(*recordings, *options, "--beam", 10, "--nbest", 10, "--lattice-beam", 2)
    arrays = read_graph(graph)
    theirs = kaldi_graph(arrays)
    for row, log_probs in zip(rows, log_probs_of(recordings), strict=True):
        expected = lattice_paths(theirs, log_probs, 16.0, 2.0, 10)
        assert [-each["score"] for each in row["nbest"]] == pytest.approx(
            [each.cost for each in expected], abs=NEAR
        )
        texts = [" ".join(arrays.words[word].lower() for word in each.words) for each in expected]
        costs = [each.cost for each in expected]
        clear = [
            index
            for index, cost in enumerate(costs)
            if all(abs(cost - other) > NEAR for other in [*costs[:index], *costs[index + 1 :]])
        ]
        assert clear
        assert [row["nbest"][index]["text"] for index in clear] == [texts[index] for index in clear]
        labels = fast_path(theirs, log_probs, 16.0, 7000).labels
        starts = [i for i, u in enumerate(labels) if u != 1 and (i == 0 or labels[i - 1] != u)]
        assert row["nbest"][0]["tokens"] == [labels[i] - 1 for i in starts]
        assert row["nbest"][0]["times"] == starts
        assert row["text"] == row["nbest"][0]["text"]
        assert [word["text"] for word in row["words"]] == row["text"].split()
        ends = [(word["start"], word["end"]) for word in row["words"]]
        assert all(start <= end for start, end in ends)
        assert [start for start, _ in ends] == sorted(start for start, _ in ends)


def test_attention_decoders_order_the_graphs_list(graph: Path, recordings: list[Path]) -> None:
    common = ["--model", MODEL, "--no-chunk", "--graph", graph, "--beam", 6, "--nbest", 6]
    listed = printed(*recordings, *common, "--decoder", "wfst")
    rescored = printed(*recordings, *common, "--decoder", "rescore", "--head", "ctc", "--ctc-weight", 0.7)
    model = load_model(MODEL)
    head = model.heads["ctc+attention"]
    for path, before, after in zip(recordings, listed, rescored, strict=True):
        samples, _ = soundfile.read(path, dtype="float32")
        encoded = model.encode([samples])
        (sums,) = head.score(encoded.frames, encoded.lengths, [[each["tokens"] for each in before["nbest"]]])
        expected = [
            (float(own) + 0.7 * each["score"], each["text"])
            for own, each in zip(sums, before["nbest"], strict=True)
        ]
        expected.sort(key=lambda pair: -pair[0])
        assert [each["score"] for each in after["nbest"]] == pytest.approx([s for s, _ in expected], abs=1e-3)
        assert [each["text"] for each in after["nbest"]] == [text for _, text in expected]


def test_a_language_model_orders_the_best_paths_of_the_exact_lattice(
    graph: Path, recordings: list[Path], tmp_path: Path
) -> None:
    """The list is the lattice's, however long: a path far down it may come first."""
    folder = write_language_model(tmp_path, random_tensors())
    common = ["--model", MODEL, "--no-chunk", "--decoder", "wfst", "--graph", graph, "--lattice-beam", 2]
    listed = printed(*recordings, *common, "--beam", 40, "--nbest", 40)
    named = ["--rescore-model", folder, "--rescore-weight", 0.5]
    ordered = printed(*recordings, *common, "--beam", 40, "--nbest", 3, *named)
    reader = load_reader(folder)
    assert isinstance(reader, LstmLanguageModel)
    for before, after in zip(listed, ordered, strict=True):
        texts = [each["text"] for each in before["nbest"]]
        assert len(set(texts)) == len(texts) > 3
        sums = reader.score([reader.tokenizer.encode(text) if text else [] for text in texts])
        pairs = zip(before["nbest"], sums, strict=True)
        expected = sorted(((each["score"] + 0.5 * own, each["text"]) for each, own in pairs), reverse=True)[
            :3
        ]
        assert [each["score"] for each in after["nbest"]] == pytest.approx([s for s, _ in expected], abs=1e-3)
        assert [each["text"] for each in after["nbest"]] == [text for _, text in expected]
        assert after["text"] == expected[0][1]
        assert " ".join(word["text"] for word in after["words"]) == after["text"]


def test_a_language_model_finds_the_best_of_all_paths_of_a_small_lattice(
    graph: Path, recordings: list[Path], tmp_path: Path
) -> None:
    """With room for all word sequences of the lattice none is missed: the list is every one that Kaldi's
    lattice has, by its cost there and the language model's sum."""
    folder = write_language_model(tmp_path, random_tensors())
    named = ["--rescore-model", folder, "--rescore-weight", 0.5]
    common = ["--model", MODEL, "--no-chunk", "--decoder", "wfst", "--graph", graph, "--lattice-beam", 2.5]
    rows = printed(*recordings, *common, "--beam", MOST_PATHS, "--nbest", MOST_PATHS, *named)
    arrays, reader = read_graph(graph), load_reader(folder)
    assert isinstance(reader, LstmLanguageModel)
    theirs, moved = kaldi_graph(arrays), 0
    for row, log_probs in zip(rows, log_probs_of(recordings), strict=True):
        paths = lattice_paths(theirs, log_probs, 16.0, 2.5, MOST_PATHS)
        texts = [" ".join(arrays.words[word].lower() for word in each.words) for each in paths]
        assert 3 < len(texts) < MOST_PATHS
        sums = reader.score([reader.tokenizer.encode(text) if text else [] for text in texts])
        expected = {
            text: float(0.5 * own - each.cost) for text, own, each in zip(texts, sums, paths, strict=True)
        }
        assert len(expected) == len(texts)
        assert {each["text"]: each["score"] for each in row["nbest"]} == pytest.approx(expected, abs=NEAR)
        ranked = sorted(expected.values(), reverse=True)
        assert [each["score"] for each in row["nbest"]] == pytest.approx(ranked, abs=NEAR)
        assert expected[row["text"]] == pytest.approx(ranked[0], abs=NEAR)
        moved += row["text"] != texts[0]
    assert moved, "no list was ordered anew"


def test_one_utterance_and_many_are_the_same_to_the_bit(graph: Path, recordings: list[Path]) -> None:
    model = load_model(MODEL)
    samples = [soundfile.read(path, dtype="float32")[0] for path in recordings]
    samples += [samples[0][:9_000], samples[1][:200]]
    options = SearchOptions(
        decoder="wfst", beam=4, nbest=4, graph=GraphSearch(name=str(graph), graph_beam=9.0, max_active=50)
    )
    together = search(model, model.encode(samples), options)
    assert [search(model, model.encode([each]), options)[0] for each in samples] == together
    backwards = search(model, model.encode(samples[::-1]), options)
    assert backwards[::-1] == together
    assert all(together)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"graph": None}, "graph: the wfst search needs a decoding graph"),
    ({"length_penalty": 0.5}, "length_penalty: the wfst search of a ctc head has no such parameter"),
    ({"beta": 1.0}, "beta: the wfst search of a ctc head has no such parameter"),
    ({"decoder": "beam", "head": "ctc"}, "graph: the beam search of a ctc head has no such parameter"),
]


@pytest.mark.parametrize(("changed", "why"), REFUSED)
def test_what_is_no_search_of_a_graph_is_refused(changed: dict[str, Any], why: str, graph: Path) -> None:
    options = SearchOptions(**{"decoder": "wfst", "graph": GraphSearch(name=str(graph)), **changed})
    with pytest.raises(InvalidRequest, match=why):
        check_options(load_model(MODEL), options)


def test_a_graph_of_other_units_is_refused(graph: Path) -> None:
    other = load_model(GOLDEN / "wenet" / "offline")
    with pytest.raises(
        InvalidRequest, match="the graph was built for 30 units, and they are not the model's"
    ):
        check_options(other, SearchOptions(decoder="wfst", graph=GraphSearch(name=str(graph))))


def test_a_ctc_head_with_blank_last_is_searched_too(tmp_path: Path) -> None:
    model = load_model(GOLDEN / "ctc.nemo")
    path = made_graph(["<blank>", *model.tokenizer.pieces], tmp_path)
    frames = np.load(GOLDEN / "ctc.npz")
    lengths = frames["encoder_len"][:2].astype(np.int32)
    heard = np.array(model.heads["ctc"].log_probs(mx.array(frames["encoder"][:2])))
    encoded = type("Encoded", (), {"frames": mx.array(frames["encoder"][:2]), "lengths": lengths})()
    lists = search(
        model, encoded, SearchOptions(decoder="wfst", beam=3, nbest=3, graph=GraphSearch(name=str(path)))
    )
    theirs = kaldi_graph(read_graph(path))
    for row, (length, hypotheses) in enumerate(zip(lengths, lists, strict=True)):
        units_first = np.concatenate([heard[row, :length, -1:], heard[row, :length, :-1]], axis=1)
        expected = fast_path(theirs, units_first, 16.0, 7000)
        assert -hypotheses[0].score == pytest.approx(expected.cost, abs=NEAR)
        labels = expected.labels
        spoken = [u - 2 for i, u in enumerate(labels) if u != 1 and (i == 0 or labels[i - 1] != u)]
        assert list(hypotheses[0].tokens) == spoken
