"""What is refused of a Sortformer's files, and how it is said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spool.errors import ModelUnreadable, WeightsMismatch
from tests.worker.models.sortformer.golden import GOLDEN, OFFLINE, STREAMING, rewritten
from worker.models import load_model, load_sortformer


def modules(**values: object) -> Callable[[dict[str, Any]], object]:
    return lambda tree: tree["sortformer_modules"].update(values)


def transformer(**values: object) -> Callable[[dict[str, Any]], object]:
    return lambda tree: tree["transformer_encoder"].update(values)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (transformer(pre_ln=True), "transformer_encoder.pre_ln is True; this engine computes False"),
        (transformer(hidden_act="gelu"), "transformer_encoder.hidden_act is 'gelu'"),
        (transformer(num_attention_heads=5), "hidden_size 24 is no multiple of num_attention_heads 5"),
        (transformer(hidden_size=48), "sortformer_modules.tf_d_model is 24; this engine computes 48"),
        (lambda tree: tree.pop("transformer_encoder"), "has no section `transformer_encoder`"),
        (lambda tree: tree["encoder"].update(n_layers="two"), "encoder.n_layers is 'two', not a size"),
        (lambda tree: tree.update(max_num_of_spks=8), "max_num_of_spks is 8; this engine computes 4"),
        (modules(chunk_len=0), "sortformer_modules.chunk_len is 0, not a whole number of 1 to"),
        (modules(spkcache_len=15), "sortformer_modules.spkcache_len is 15, not a whole number of 16 to"),
        (modules(fifo_len="many"), "sortformer_modules.fifo_len is 'many'"),
        (modules(sil_threshold=None), "sortformer_modules.sil_threshold is None"),
        (modules(pred_score_threshold=1), "pred_score_threshold has to lie between 0 and 1"),
    ],
)
def test_a_configuration_that_is_not_computed_is_refused_by_the_setting(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    path = rewritten(STREAMING, tmp_path / "odd.nemo", change)
    with pytest.raises(ModelUnreadable) as refused:
        load_sortformer(path)
    assert str(refused.value).startswith(f"{path}: model_config.yaml: ")
    assert sentence in str(refused.value)


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = rewritten(OFFLINE, tmp_path / "deep.nemo", transformer(num_layers=3, inner_size=48))
    with pytest.raises(WeightsMismatch) as refused:
        load_sortformer(path)
    assert str(refused.value).startswith(f"{path}: the weights do not fit the model's configuration; ")
    assert "second_sub_layer.dense_in.weight: expected [48, 24], found [96, 24]" in str(refused.value)
    assert "missing: transformer_encoder.layers.2." in str(refused.value)


def test_a_model_of_another_family_is_no_sortformer() -> None:
    with pytest.raises(ModelUnreadable, match="this is no Sortformer, but EncDecRNNTBPEModel"):
        load_sortformer(GOLDEN / "rnnt.nemo")


def test_what_is_no_archive_is_refused_in_one_line() -> None:
    with pytest.raises(ModelUnreadable) as refused:
        load_sortformer(GOLDEN / "audio.npz")
    assert "not a readable .nemo file" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_sortformer_does_not_transcribe() -> None:
    with pytest.raises(ModelUnreadable, match="a Sortformer tells speakers apart and transcribes nothing"):
        load_model(GOLDEN / "sortformer" / f"{OFFLINE}.nemo")
