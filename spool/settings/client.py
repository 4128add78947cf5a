"""The settings of a command that asks a server: few, so that it does not wait for all of them to be read."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from spool.errors import SettingsError, first_fault

PREFIX = "SPOOL_"


class ClientSettings(BaseModel):
    """What a client of the API reads from the environment. Frozen; secrets are not in its repr."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    home: Path = Path("var")
    api_host: str = "127.0.0.1"
    api_port: int = Field(8700, ge=0, le=65535)
    api_token: SecretStr | None = None
    """The operator's token, with every right; other callers have keys (`spool keys`)."""
    api_key: SecretStr | None = None
    """The key that the `spool` command sends."""

    @field_validator("home")
    @classmethod
    def _whole_path(cls, value: Path) -> Path:
        return value.expanduser().resolve()


Model = TypeVar("Model", bound=BaseModel)


def load_client_settings() -> ClientSettings:
    """Read a client's settings from the environment. Raises SettingsError."""
    return read_settings(ClientSettings, os.environ)


def read_settings(model: type[Model], environ: Mapping[str, str], **overrides: Any) -> Model:  # noqa: ANN401
    """The settings that `model` declares, from `SPOOL_*` variables and the files of secrets; `overrides` take
    precedence. Raises SettingsError."""
    upper = {name.upper(): value for name, value in environ.items()}
    values: dict[str, Any] = {
        name: upper[PREFIX + name.upper()] for name in model.model_fields if upper.get(PREFIX + name.upper())
    }
    values |= _secrets_from_files(secrets_of(model), upper)
    values |= overrides
    try:
        return model(**values)
    except ValidationError as error:
        where, _, message = first_fault(error).partition(": ")
        name, _, member = where.partition(".")
        inside = f"{member}: " if member else ""
        raise SettingsError(f"{PREFIX}{name.upper()}: {inside}{message}.") from None


def secrets_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The settings that may also be read from the file that `SPOOL_…_FILE` names."""
    fields = model.model_fields.items()
    return tuple(name for name, field in fields if not field.repr or SecretStr in get_args(field.annotation))


def _secrets_from_files(names: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    secrets = {}
    for name in names:
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
