"""Spool as others install it: a source distribution, its wheel, and environments with its extras alone."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from ops.testbed.ports import free_port
from tests.packaging.environments import ROOT, Environment, build_sdist, build_wheel, make_environment, unpack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
RECORDING = ROOT / "samples" / "demo-tdt" / "digits" / "string-2.flac"
CLIENT = """
import json, sys
import spool.client
from importlib.util import find_spec
names = ["sqlalchemy", "celery", "boto3", "structlog", "typer", "cyclopts"]
print(json.dumps([name for name in names if find_spec(name) is not None]))
"""
CALLER = """from spool.client import Spool

with Spool("http://localhost:8700") as spool:
    job = spool.submit("a.wav", options={"decoder": "beam", "beam": 4})
    spool.submit("a.wav", options={"decodr": "beam"})
    for each in spool.job_page(state="finished").items:
        print(each.id, job.id)
"""
TRANSCRIBE = """
import sys
from spool.client import Spool
with Spool(sys.argv[1], open("var/api-token").read()) as spool:
    job = spool.wait(spool.submit(sys.argv[2]).id)
    print(spool.transcript(job.id, "txt"))
"""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel"))


def test_the_sources_are_complete_and_the_wheel_has_the_program_alone(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "LICENSE", "Makefile", "constraints.txt", "tests/test_house.py"} <= sources
    assert {"docs/design.md", "ops/locks/run.txt", "tests/golden/hybrid/config.json"} <= sources
    with ZipFile(wheel) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist()}
        model = archive.read("spool/bundled_files/models/demo/model.safetensors")
    assert {name for name in folders if not name.endswith(".dist-info")} == {
        "api", "kernels", "migrations", "spool", "worker",
    }  # fmt: skip
    assert model == (ROOT / "models" / "demo" / "model.safetensors").read_bytes()


def test_the_client_alone_needs_httpx_and_pydantic(wheel: Path, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env", wheel, ())
    client = environment.run("python", "-c", CLIENT)
    assert client.returncode == 0, client.stderr
    assert json.loads(client.stdout) == []
    for command, extra in (("spool", "spool-transcribe[cli]"), ("spool-worker", "spool-transcribe[worker]")):
        for arguments in (("--help",), ("status",)):
            refused = environment.run(command, *arguments)
            assert refused.returncode == 1
            assert extra in refused.stderr
            assert "Traceback" not in refused.stderr


def test_the_command_alone_uses_a_server_elsewhere(wheel: Path, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env", wheel, ("cli",))
    assert "submit" in environment.run("spool", "--help").stdout
    away = environment.run("spool", "status", SPOOL_URL=f"http://127.0.0.1:{free_port()}")
    assert "No answer from" in away.stderr
    serving = environment.run("spool", "serve")
    assert (serving.returncode, "spool-transcribe[api" in serving.stderr) == (1, True)
    assert "Traceback" not in away.stderr + serving.stderr


def test_everything_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env", wheel, ("api", "worker", "embedded"))
    port = free_port()
    variables = {"SPOOL_MODELS": "demo-tdt=demo-tdt", "SPOOL_API_PORT": str(port)}
    models = environment.run("spool", "models", "list", "--json")
    state = {each["name"]: each["state"] for each in json.loads(models.stdout)}
    assert state["demo-tdt"] == "bundled"
    assert environment.run("spool", "models", "verify", "demo-tdt").returncode == 0
    up = environment.run("spool", "up", "--detach", **variables)
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        check = environment.run("spool-worker", "check", **variables)
        levels = {line.split()[0] for line in check.stdout.splitlines() if line and not line.startswith(" ")}
        assert (check.returncode, levels) == (0, {"ok"}), check.stdout
        words = _transcribe(environment, f"http://127.0.0.1:{port}")
    finally:
        environment.run("spool", "down", **variables)
    assert words == "one two one zero"


@pytest.mark.long
def test_an_editable_install_is_typed(sdist: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "sources"
    unpack(sdist, unpacked)
    (tree,) = unpacked.iterdir()
    make_environment(tmp_path / "env", tree, ())
    (tmp_path / "caller.py").write_text(CALLER)
    mypy = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", "env/bin/python", "caller.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    faults = [line for line in mypy.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in faults] == ["5", "6"], mypy.stdout + mypy.stderr
    assert 'expected "Options' in faults[0]


def _transcribe(environment: Environment, url: str) -> str:
    done = environment.run("python", "-c", TRANSCRIBE, url, str(RECORDING))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
