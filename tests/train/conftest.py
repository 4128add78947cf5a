"""The training code is tested where PyTorch is (`make test-train`); elsewhere nothing here is collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
