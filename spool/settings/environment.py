"""Settings as the environment gives them: `SPOOL_*` variables, and secrets from files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spool.errors import SettingsError
from spool.settings.model import PREFIX, SECRETS, Settings
from spool.settings.validation import refuse_contradictions


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:  # noqa: ANN401
    """Read the settings from the environment; `overrides` win. Raises SettingsError with one sentence."""
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
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"][:1]) or "settings"
        # A mapping's key, and the member below it: whose value it is that cannot be read.
        where = "".join(f"{part}: " for part in [".".join(map(str, first["loc"][1:]))] if part)
        message = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{PREFIX}{field.upper()}: {where}{message}.") from None
    refuse_contradictions(settings)
    return settings


def _secrets_from_files(environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
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
        found[name] = secret
    return found
