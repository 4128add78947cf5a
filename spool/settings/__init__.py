"""Every setting of Spool in one frozen object, read from `SPOOL_*` variables."""

from spool.settings.environment import load_settings
from spool.settings.fields import Settings
from spool.settings.unknown import unknown_variables

__all__ = ["Settings", "load_settings", "unknown_variables"]
