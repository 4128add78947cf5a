"""Reads every setting from the environment, and refuses those that contradict each other."""

import os
from collections.abc import Mapping
from typing import Any

from spool.settings.client import read_settings
from spool.settings.model import Settings
from spool.settings.validation import refuse_contradictions


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:  # noqa: ANN401
    """Read the settings from the environment; `overrides` take precedence. Raises SettingsError."""
    given = os.environ if environ is None else environ
    upper = {name.upper(): value for name, value in given.items()}
    if not upper.get("SPOOL_OTLP_ENDPOINT"):
        upper["SPOOL_OTLP_ENDPOINT"] = upper.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    settings = read_settings(Settings, upper, **overrides)
    refuse_contradictions(settings)
    return settings
