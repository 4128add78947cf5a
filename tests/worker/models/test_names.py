"""The names of a checkpoint's tensors follow from a configuration and a family's table, without weights."""

from pathlib import Path

import yaml

from worker.models import (
    NEMO,
    WENET,
    Network,
    TorchCheckpoint,
    WenetNetwork,
    open_nemo,
    parse_config,
    stored_shapes,
)
from worker.models.conformer.encoder import EncoderPart
from worker.models.sortformer.config import parse_sortformer
from worker.models.sortformer.network import shapes_of as sortformer_shapes
from worker.models.wenet.config import read_config
from worker.models.wenet.decoder import shapes_of

GOLDEN = Path(__file__).parents[2] / "golden"


def test_nemos() -> None:
    for name in ("hybrid", "rnnt", "causal"):
        with open_nemo(GOLDEN / f"{name}.nemo") as archive:
            config = parse_config(archive.config, name)
            found = {
                key: shape for key, shape in archive.weights.shapes.items() if not NEMO.ignored.search(key)
            }
        network = Network(config, len(config.vocabulary or ()))
        assert stored_shapes(network) == found


def test_sortformers() -> None:
    for path in sorted((GOLDEN / "sortformer").glob("*.nemo")):
        with open_nemo(path) as archive:
            config, found = parse_sortformer(archive.config, path.name), archive.weights.shapes
        expected = stored_shapes(EncoderPart(config.encoder)) | sortformer_shapes(config)
        assert expected == {key: shape for key, shape in found.items() if not NEMO.ignored.search(key)}


def test_wenets() -> None:
    for name in ("offline", "rnnt"):
        tree = yaml.safe_load((GOLDEN / "wenet" / name / "train.yaml").read_text())
        with (GOLDEN / "wenet" / name / "final.pt").open("rb") as file:
            shapes = TorchCheckpoint(file, name).shapes
        config = read_config(tree, shapes, shapes["ctc.ctc_lo.weight"][0], name)
        expected = stored_shapes(WenetNetwork(config), WENET) | shapes_of(config)
        found = {key: shape for key, shape in shapes.items() if not WENET.ignored.search(key)}
        assert expected == found
