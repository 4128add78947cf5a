"""Settings: defaults, forms, secrets and contradictions."""

import os
import re
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from spool.errors import SettingsError
from spool.settings import (
    FRAME_BUDGET,
    MAX_BATCH,
    SECRETS,
    Settings,
    load_client_settings,
    load_settings,
    socket_path,
    unknown_variables,
)


def test_without_any_setting_it_is_the_embedded_stack_under_home(tmp_path: Path) -> None:
    settings = load_settings({"SPOOL_HOME": str(tmp_path)})

    assert settings.database_url == f"sqlite:///{tmp_path}/spool.db"
    assert settings.objects_folder == tmp_path / "objects"
    assert settings.redis_url == f"redis+socket://{socket_path(tmp_path)}"
    assert settings.api_host == "127.0.0.1"
    assert settings.default_model in settings.models
    assert not list(tmp_path.iterdir()), "reading settings makes nothing"


def test_a_client_reads_its_own_settings_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-1\n")
    given = {"HOME": str(tmp_path / "home"), "API_KEY_FILE": str(tmp_path / "key"), "API_PORT": "8701"}
    for name, value in {**given, "QUOTAS": "wrong"}.items():
        monkeypatch.setenv(f"SPOOL_{name}", value)

    settings = load_client_settings()

    assert (settings.home, settings.api_host, settings.api_port) == (tmp_path / "home", "127.0.0.1", 8701)
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == "sk-1"
    assert "sk-1" not in repr(settings)
    with pytest.raises(SettingsError, match="SPOOL_QUOTAS"):
        load_settings()


def test_home_is_var_and_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings({}).home == tmp_path / "var"


def test_a_dead_share_among_the_source_roots_holds_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    share, linked, lstat, back = tmp_path / "share", tmp_path / "link", os.lstat, threading.Event()
    share.mkdir()
    linked.symlink_to(tmp_path)

    def hang(place: Any, **named: Any) -> os.stat_result:  # as calls to a server that is gone
        if Path(str(place)).name == "share":
            back.wait(60)
        return lstat(place, **named)

    monkeypatch.setattr(os, "lstat", hang)
    monkeypatch.setattr("spool.answering.ANSWER_SECONDS", 0.1)
    settings = load_settings({"SPOOL_SOURCE_ROOTS": f"{linked}/share:{linked}/other"})
    back.set()
    assert settings.source_roots == (share, tmp_path / "other"), "links are followed as far as disks answer"


def test_variables_and_overrides(tmp_path: Path) -> None:
    environ = {
        "SPOOL_MODELS": "demo-tdt=/m/demo,big=mlx-community/parakeet",
        "SPOOL_DEFAULT_MODEL": "big",
        "SPOOL_RATE_CARD": '{"mini-3": 0.1, "metal": "0.25"}',
        "SPOOL_SOURCE_ROOTS": f"{tmp_path}:/archive",
        "SPOOL_CONCURRENCY": "3",
        "SPOOL_LOG_JSON": "true",
        "SPOOL_POOL": "metal",
        "SPOOL_WORKER_NAME": "",
    }
    settings = load_settings(environ, concurrency=5)

    assert settings.models == {"demo-tdt": "/m/demo", "big": "mlx-community/parakeet"}
    assert settings.rate_card == {"mini-3": Decimal("0.1"), "metal": Decimal("0.25")}
    assert settings.source_roots == (tmp_path, Path("/archive"))
    assert (settings.concurrency, settings.log_json) == (5, True)
    assert settings.worker_name, "an empty variable is none"
    assert settings.price_per_hour_micros("mini-3") == 100_000
    assert settings.price_per_hour_micros("other") == 250_000
    assert settings.price_per_hour_micros("other", "cpu") == 100_000


def test_quotas_and_shares_are_told_in_two_ways() -> None:
    quotas = "small=hours_a_day:1.5+jobs_in_flight:4,*=spend_a_month:50"
    plain = load_settings({"SPOOL_QUOTAS": quotas, "SPOOL_SHARES": "small=2"})
    told = '{"small": {"hours_a_day": 1.5, "jobs_in_flight": 4}, "*": {"spend_a_month": 50}}'
    assert plain.quotas == load_settings({"SPOOL_QUOTAS": told}).quotas
    assert (plain.rules.shares, plain.quotas["*"].spend_a_month) == ({"small": 2.0}, Decimal(50))


def test_settings_cannot_change(tmp_path: Path) -> None:
    settings = load_settings({}, home=tmp_path)
    with pytest.raises(ValidationError):
        settings.api_port = 1  # type: ignore[misc]


def test_secrets_come_from_files_and_stay_secret(tmp_path: Path) -> None:
    secrets = {
        "SPOOL_API_TOKEN": "token-token-token-token",
        "SPOOL_S3_SECRET_ACCESS_KEY": "s3cret",
        "SPOOL_S3_ACCESS_KEY_ID": "keyid",
        "SPOOL_DATABASE_URL": "postgresql://spool:hunter2@db/spool",
        "SPOOL_REDIS_URL": "rediss://:swordfish@redis:6379/0",
    }
    environ = {}
    for name, secret in secrets.items():
        path = tmp_path / name
        path.write_text(f"{secret}\n")
        environ[f"{name}_FILE"] = str(path)

    settings = load_settings(environ)

    assert settings.api_token is not None
    assert settings.api_token.get_secret_value() == "token-token-token-token"
    assert settings.database_url == "postgresql://spool:hunter2@db/spool"
    shown = repr(settings) + str(settings)
    assert not [
        secret for secret in ("token-token", "s3cret", "keyid", "hunter2", "swordfish") if secret in shown
    ]


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"SPOOL_API_TOKEN": "short"}, "16 characters"),
        ({"SPOOL_DATABASE_URL": "mysql://h/d"}, "sqlite: or postgresql:"),
        ({"SPOOL_REDIS_URL": "amqp://h"}, "SPOOL_REDIS_URL"),
        ({"SPOOL_OBJECTS": "s3:///prefix"}, "no bucket"),
        ({"SPOOL_OBJECTS": "/folder"}, "file:///folder"),
        ({"SPOOL_OBJECTS": "file://host/folder"}, "absolute folder"),
        ({"SPOOL_S3_ACCESS_KEY_ID": "a"}, "both or none"),
        ({"SPOOL_REDIS_URL": "redis://10.0.0.1", "SPOOL_OBJECTS": "s3://b"}, "use PostgreSQL"),
        ({"SPOOL_LEASE_SECONDS": "10", "SPOOL_HEARTBEAT_SECONDS": "5"}, "twice SPOOL_HEARTBEAT_SECONDS"),
        ({"SPOOL_FRAME_BUDGET": "100"}, "long chunk"),
        ({"SPOOL_PRICE_PER_HOUR": "0.00000001"}, "6 decimals"),
        ({"SPOOL_RATE_CARD": "metal=-1"}, "price"),
        ({"SPOOL_RATE_CARD": "metal"}, "SPOOL_RATE_CARD"),
        ({"SPOOL_RATE_CARD": "{"}, "SPOOL_RATE_CARD"),
        ({"SPOOL_MODELS": "{broken"}, "SPOOL_MODELS"),
        ({"SPOOL_QUOTAS": "small"}, "SPOOL_QUOTAS: has to be JSON or a list"),
        ({"SPOOL_QUOTAS": "small=10"}, "SPOOL_QUOTAS: small: '10' is not a limit; write NAME:NUMBER"),
        ({"SPOOL_QUOTAS": "small=hours_a_day:x"}, "SPOOL_QUOTAS: small.hours_a_day: "),
        ({"SPOOL_QUOTAS": '{"small": {"jobs_in_flight": -1}}'}, "SPOOL_QUOTAS: small.jobs_in_flight: "),
        ({"SPOOL_QUOTAS": '{"small": {"jobs": 1}}'}, "SPOOL_QUOTAS: small.jobs: "),
        ({"SPOOL_SHARES": "small=0"}, "SPOOL_SHARES: small: "),
        ({"SPOOL_CONCURRENCY": "many"}, "SPOOL_CONCURRENCY"),
        ({"SPOOL_API_PORT": "70000"}, "SPOOL_API_PORT"),
        ({"SPOOL_POOL": "a b"}, "SPOOL_POOL"),
        ({"SPOOL_SECRET_KEY": "short"}, "32 characters"),
        ({"SPOOL_SECRET_KEY": f"{'long' * 10},short"}, "32 characters"),
        ({"SPOOL_CURRENCY": "dollars"}, "SPOOL_CURRENCY"),
        ({"SPOOL_API_TOKEN_FILE": "/nowhere/token"}, "/nowhere/token"),
        ({"SPOOL_API_TOKEN_FILE": "/dev/null"}, "empty"),
        ({"SPOOL_API_TOKEN_FILE": "/x", "SPOOL_API_TOKEN": "y" * 20}, "not both"),
    ],
)
def test_a_contradiction_refuses_with_one_sentence(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        load_settings(environ)

    message = refusal.value.message
    assert sentence in message
    assert message.endswith(".")
    assert "\n" not in message


def test_a_refusal_does_not_tell_the_secret() -> None:
    with pytest.raises(SettingsError) as refusal:
        load_settings({"SPOOL_DATABASE_URL": "mysql://root:hunter2@h/d"})
    assert "hunter2" not in str(refusal.value)


def test_a_reachable_host_with_a_token_is_allowed() -> None:
    assert load_settings({"SPOOL_API_HOST": "0.0.0.0", "SPOOL_API_TOKEN": "x" * 32}).api_host == "0.0.0.0"


def test_several_machines_on_postgresql_are_allowed() -> None:
    environ = {
        "SPOOL_DATABASE_URL": "postgresql://db/spool",
        "SPOOL_REDIS_URL": "redis://10.0.0.1",
        "SPOOL_OBJECTS": "s3://bucket/prefix",
    }
    assert load_settings(environ).objects == "s3://bucket/prefix"


def test_a_variable_that_is_no_setting_is_named_with_the_one_that_was_meant() -> None:
    environ = {
        "SPOOL_CONCURENCY": "3",
        "spool_lease_second": "9",
        "SPOOL_COLOUR_OF_THE_LABEL": "red",
        "SPOOL_CONCURRENCY": "3",
        "SPOOL_DATABASE_URL_FILE": "/x",
        "SPOOL_URL": "http://localhost",
        "SPOOL_KERNELS": "auto",
        "PATH": "/bin",
    }
    assert list(unknown_variables(environ)) == [
        "SPOOL_COLOUR_OF_THE_LABEL is not a Spool setting; nothing reads it.",
        "SPOOL_CONCURENCY is not a Spool setting; did you mean SPOOL_CONCURRENCY?",
        "spool_lease_second is not a Spool setting; did you mean SPOOL_LEASE_SECONDS?",
    ]


UNITS = {"h": 3600, "MiB": 2**20, "GiB": 2**30}


def documented() -> dict[str, str]:
    """The variables of docs/settings.md, with their defaults."""
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    defaults: dict[str, str] = {}
    for line in page.splitlines():
        if line.startswith("| `SPOOL_"):
            names, default = (cell.strip() for cell in line.split("|")[1:3])
            variables = re.findall(r"`SPOOL_(\w+)`", names)
            parts = default.split(", ") if len(variables) > 1 else [default]
            assert len(parts) in (len(variables), 1), line
            defaults |= {name.lower(): part for name, part in zip(variables, parts, strict=False)}
            defaults |= {name.lower(): "" for name in variables[len(parts) :]}
    return defaults


def test_the_documented_settings_exist_and_have_these_defaults(tmp_path: Path) -> None:
    settings, compared = load_settings({}, home=tmp_path), 0
    for name, told in documented().items():
        assert name in Settings.model_fields, name
        value, text = getattr(settings, name), told.strip("`")
        number, _, unit = text.partition(" ")
        if text == "none":
            assert not value, name
        elif text in ("true", "false"):
            assert value is (text == "true"), name
        elif re.fullmatch(r"[0-9]+(\.[0-9]+)?", number) and unit in ("", *UNITS):
            automatic = {"frame_budget": FRAME_BUDGET, "max_batch": MAX_BATCH}  # None: as memory allows
            actual = automatic.get(name) if value is None else value
            assert float(actual or 0) == float(number) * UNITS.get(unit, 1), name
        elif re.fullmatch(r"`[^`]+`", told) and Settings.model_fields[name].default_factory is None:
            assert str(Settings.model_fields[name].default) == text, name
        else:
            continue
        compared += 1
    assert compared > 50


def test_every_secret_may_come_from_a_file(tmp_path: Path) -> None:
    assert {"api_token", "secret_key", "database_url", "s3_secret_access_key"} <= set(SECRETS)
    assert not {"home", "api_port", "models"} & set(SECRETS)
