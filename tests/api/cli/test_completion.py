"""What a shell offers after a Tab, as its script asks for it; against the real server."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job

Offered = Callable[[str], str]


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offered:
    """What the command answers to a shell that completes a line: a value on each line, and a description."""
    monkeypatch.setenv("SPOOL_HOME", str(tmp_path / "elsewhere"))

    def ask(line: str) -> str:
        told = invoke(main, ["__complete", *line.split(" ")[1:]])
        assert (told.exit_code, told.stderr) == (0, "")
        begin, *candidates = told.stdout.strip("\n").splitlines()
        assert begin == "\x1fbegin"
        return "\n".join(candidates)

    return ask


def test_a_shell_is_offered_what_the_server_knows(
    live: Live, http: httpx.Client, recordings: Path, offered: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOOL_URL", live.url)
    job = http.post("/v1/jobs", json=file_job(recordings, name="Reel 42")).json()["id"]
    assert f"{job}\tqueued, Reel 42" in offered(f"spool transcript {job[:8]}")


def test_states_formats_models_and_batches(
    live: Live, http: httpx.Client, recordings: Path, offered: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOOL_URL", live.url)
    source = {"source": recordings.as_uri() + "/"}
    batch = http.post("/v1/batches", json=source).json()["id"]
    assert offered("spool submit --model d").split()[0] == "demo-tdt"
    assert offered("spool batch status bat").split()[0] == batch
    script = invoke(main, ["--show-completion", "bash"]).stdout
    assert {"cancelled", "textgrid", "--decoder"} <= set(script.replace('"', " ").replace("'", " ").split())


def test_without_a_server_nothing_is_offered_and_nothing_said(
    offered: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOOL_URL", "http://127.0.0.1:9")
    assert offered("spool transcript job").strip() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_can_be_had(shell: str) -> None:
    told = invoke(main, ["--show-completion", shell])
    assert told.exit_code == 0
    assert "spool" in told.stdout
    assert "__complete" in told.stdout
    assert "--decoder" in told.stdout
