"""docker-compose.yml: what the schema allows, what every service has to have, files and secrets in place."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from ops.images.dockerfile import NotUnderstood, ignored, read_steps, steps_of
from ops.testbed.compose import COMPOSE, SERVICES, example_settings, write_secrets
from ops.testbed.processes import ROOT
from spool.settings import load_settings, unknown_variables

FILES = ["docker-compose.yml", "ops/images/lan.yml", "ops/images/archive.yml"]
ONCE = {"migrate"}  # runs to its end: there is no health to ask for
WATCHED = {"audit"}  # by the alert SpoolAuditMissing


@pytest.mark.parametrize("file", FILES)
def test_the_schema_allows_it(file: str) -> None:
    content = yaml.safe_load((ROOT / file).read_text())
    schema = json.loads((Path(__file__).parent / "compose-spec.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(content)
    wrong = {**content, "services": {"api": {"mem_limits": "1g"}}}
    with pytest.raises(jsonschema.ValidationError, match="mem_limits"):
        jsonschema.Draft202012Validator(schema).validate(wrong)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_careful(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert service["pids_limit"] > 0
    assert ("healthcheck" in service) is (name not in ONCE | WATCHED)
    assert ("user" in service) is ("build" not in service), "of our images the Dockerfile says the user"
    assert service.get("user") != "root"
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), "reachable from other machines"


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_names_exists(name: str) -> None:
    service = SERVICES[name]
    for volume in service.get("volumes", []):
        source, target = volume.split(":")[:2]
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert volume.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]
        assert target.startswith("/")
    assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
    assert set(service.get("depends_on", {})) <= set(SERVICES)
    for other, wanted in service.get("depends_on", {}).items():
        expected = "service_completed_successfully" if other in ONCE else "service_healthy"
        assert wanted["condition"] == expected
    for variable, value in service.get("environment", {}).items():
        if variable.endswith("_FILE"):
            assert value.removeprefix("/run/secrets/") in service["secrets"], "a secret that is not mounted"


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_and_no_password_stands_in_the_file(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].rpartition(":")
    assert tag == "local" if "build" in SERVICES[name] else re.fullmatch(r"v?\d+\.\d+(\.\d+)?", tag), image
    for variable, value in SERVICES[name].get("environment", {}).items():
        if re.search("PASSWORD|SECRET|TOKEN|KEY", variable):
            assert variable.endswith("_FILE"), f"{variable} is given in the open"
            assert value.startswith("/run/secrets/")


def test_every_volume_and_secret_is_used() -> None:
    mounted = {volume.split(":")[0] for told in SERVICES.values() for volume in told.get("volumes", [])}
    assert set(COMPOSE["volumes"]) == {name for name in mounted if name[0] != "."}
    assert set(COMPOSE["secrets"]) == {name for told in SERVICES.values() for name in told.get("secrets", [])}


def test_the_example_shows_settings_that_exist_and_all_that_compose_reads() -> None:
    example = example_settings()
    assert list(unknown_variables(example)) == []
    settings = load_settings(example)
    assert settings.quotas["oral-history"].jobs_in_flight == 4
    assert settings.source_roots == (Path("/srv/archive"),)
    read = {name for file in FILES for name in re.findall(r"\$\{(\w+)", (ROOT / file).read_text())}
    assert read <= set(example)
    assert set(example["COMPOSE_FILE"].split(":")) == set(FILES)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["migrate", "api", "api-2", "audit", "worker"])
def test_the_settings_are_settings(name: str, tmp_path: Path) -> None:
    assert SERVICES[name]["env_file"] == [{"path": ".env", "required": False}]
    environment = example_settings() | SERVICES[name]["environment"]
    assert list(unknown_variables(environment)) == []
    write_secrets(tmp_path)
    for variable, value in environment.items():
        if value.startswith("/run/secrets/"):
            secret = value.removeprefix("/run/secrets/")
            environment[variable] = str(tmp_path / COMPOSE["secrets"][secret]["file"])
    settings = load_settings(environment)
    assert settings.database_url.endswith("@database:5432/spool")
    assert settings.redis_url.endswith("@broker:6379/0")
    assert len(settings.api_token.get_secret_value() if settings.api_token else "") == 48


@pytest.mark.integration
def test_every_secret_is_made_at_random_and_once(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write_secrets(here)
    write_secrets(there)
    files = {secret["file"] for secret in COMPOSE["secrets"].values()}
    first = {file: (here / file).read_text() for file in files}
    same = {file for file in files if first[file] == (there / file).read_text()}
    assert same == {"./secrets/s3_access_key_id", "./secrets/alert_url"}
    (here / ".env").write_text("SITE=spool.example.org\nSPOOL_SHARES='oral-history=2'\nSPOOL_CURRENCY=EUR\n")
    settings = write_secrets(here, "--for-a-mac", "10.0.0.5")
    assert {file: (here / file).read_text() for file in files} == first
    environment = dict(line.split("=", 1) for line in settings.splitlines())
    assert list(unknown_variables(environment)) == []
    loaded = load_settings(environment)
    assert "@10.0.0.5:5432/" in loaded.database_url
    assert (loaded.shares, loaded.currency) == ({"oral-history": 2}, "EUR")
    assert (here / "secrets").stat().st_mode & 0o777 == 0o700


@pytest.mark.integration
def test_the_broker_keeps_what_it_has_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    write_secrets(tmp_path)
    lines = (tmp_path / "secrets/broker.conf").read_text().splitlines()
    assert {"appendonly yes", "maxmemory-policy noeviction"} <= set(lines)
    assert any(line.startswith("requirepass ") and len(line) > 40 for line in lines)
    most = next(int(line.split()[1].removesuffix("mb")) for line in lines if line.startswith("maxmemory "))
    assert most < int(SERVICES["broker"]["mem_limit"].removesuffix("m"))


# --- images ---------------------------------------------------------------------------------------------

DOCKERFILES = {"Dockerfile": ["api", "worker"], "objects.Dockerfile": ["last"], "proxy.Dockerfile": ["last"]}
TARGETS = [(file, target) for file, targets in DOCKERFILES.items() for target in targets]


@pytest.mark.parametrize(("file", "target"), TARGETS)
def test_what_an_image_copies_is_there_and_not_left_out(file: str, target: str) -> None:
    rules = (ROOT / ".dockerignore").read_text()
    steps = steps_of((ROOT / "ops/images" / file).read_text(), target)
    for step in steps:
        if step.word == "COPY":
            for source in step.rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert not ignored(source, rules), source
    assert next(step.rest for step in reversed(steps) if step.word == "USER") != "root"


def test_no_secret_reaches_an_image_builder() -> None:
    rules = (ROOT / ".dockerignore").read_text()
    for name in ("secrets", "secrets/api_token", ".env", ".git", ".venv", "var", "spool/__pycache__"):
        assert ignored(name, rules), name


def test_images_install_by_hash_and_are_pinned() -> None:
    for file in DOCKERFILES:
        text = (ROOT / "ops/images" / file).read_text()
        for line in text.splitlines():
            if line.startswith("FROM "):
                assert re.fullmatch(r"FROM (base|\S+:v?\d+\.\d+\.\d+\S*)( AS \w+)?", line), line
            if "pip install" in line:
                assert "--require-hashes" in line or "--no-deps --no-build-isolation -e ." in line, line


def test_an_unknown_instruction_is_refused() -> None:
    with pytest.raises(NotUnderstood, match="line 2: ADD"):
        list(read_steps("FROM base\nADD https://example.org/x /x\n"))
