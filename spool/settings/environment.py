"""Reads the settings from the environment: `SPOOL_*` variables, and secrets from files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spool.errors import SettingsError, first_fault
from spool.settings.model import PREFIX, SECRETS, Settings
from spool.settings.validation import refuse_contradictions


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:  # noqa: ANN401
    """Read the settings from the environment; `overrides` take precedence. Raises SettingsError."""
    environ = os.environ if environ is None else environ
    upper = {name.upper(): value for name, value in environ.items()}
    values: dict[str, Any] = {
        name: upper[PREFIX + name.upper()]
        for name in Settings.model_fields
        if upper.get(PREFIX + name.upper())
    }
    if "otlp_endpoint" not in values and (standard := upper.get("OTEL_EXPORTER_OTLP_ENDPOINT")):
        values["otlp_endpoint"] = standard
    values |= _secrets_from_files(upper)
    values |= overrides
    try:
        settings = Settings(**values)
    except ValidationError as error:
        where, _, message = first_fault(error).partition(": ")
        name, _, member = where.partition(".")
        inside = f"{member}: " if member else ""
        raise SettingsError(f"{PREFIX}{name.upper()}: {inside}{message}.") from None
    refuse_contradictions(settings)
    return settings


def _secrets_from_files(environ: Mapping[str, str]) -> dict[str, str]:
    secrets = {}
    for name in SECRETS:
        variable = PREFIX + name.upper()
        path = environ.get(f"{variable}_FILE")
        if not path:
            continue
        if environ.get(variable):
            raise SettingsError(f"Set {variable} or {variable}_FILE, not both.")
        try:
            secret = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise SettingsError(f"{variable}_FILE names {path}, which cannot be read.") from None
        if not secret:
            raise SettingsError(f"{variable}_FILE names {path}, which is empty.")
        secrets[name] = secret
    return secrets
