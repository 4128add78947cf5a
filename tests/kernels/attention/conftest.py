"""Leaves out what this machine cannot compile (`tests.kernels.needs`)."""

from tests.kernels.needs import left_out

collect_ignore: list[str] = []
if "test_device.py" in left_out:
    collect_ignore += [
        "test_cross_attention.py",
        "test_self_attention.py",
        "test_rules_topk.py",
        "test_dtw.py",
        "test_full_attention.py",
    ]
if "test_strict.py" in left_out:
    collect_ignore += ["test_attention_compilers.py"]
