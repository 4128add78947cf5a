"""Every setting of Spool in one frozen object, read from `SPOOL_*` variables."""

from spool.settings.environment import load_settings
from spool.settings.model import Device, Settings
from spool.settings.validation import FRAME_BUDGET, LONGEST_CHUNK_FRAMES, MAX_BATCH, unknown_variables

__all__ = [
    "FRAME_BUDGET",
    "LONGEST_CHUNK_FRAMES",
    "MAX_BATCH",
    "Device",
    "Settings",
    "load_settings",
    "unknown_variables",
]
