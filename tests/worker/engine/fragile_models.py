"""The tiny model, in a module that cannot be imported any more once the file `TEST_BROKEN` names is there."""

import os
from pathlib import Path

from ops.testbed.fake_models import load

__all__ = ["load"]

if Path(os.environ["TEST_BROKEN"]).exists():
    raise ImportError("this installation broke while the worker ran")
