"""What the shell offers after a Tab, as bash, zsh and fish ask for it; against the real server."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from api.cli.main import main
from ops.testbed.running_api import Live, file_job

Offered = Callable[[str, str], str]


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offered:
    """What the command answers to a shell that completes a line."""
    monkeypatch.setenv("SPOOL_HOME", str(tmp_path / "elsewhere"))

    def ask(shell: str, line: str) -> str:
        monkeypatch.setenv("_SPOOL_COMPLETE", f"complete_{shell}")
        if shell == "bash":
            monkeypatch.setenv("COMP_WORDS", line)
            monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        else:
            monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
            monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        with pytest.raises(SystemExit) as ended:
            main([])
        assert not ended.value.code
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return ask


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_completes_what_the_server_knows(
    live: Live,
    http: httpx.Client,
    recordings: Path,
    offered: Offered,
    monkeypatch: pytest.MonkeyPatch,
    shell: str,
) -> None:
    monkeypatch.setenv("SPOOL_URL", live.url)
    job = http.post("/v1/jobs", json=file_job(recordings, name="Reel 42")).json()["id"]
    told = offered(shell, f"spool transcript {job[:8]}")
    assert job in told
    assert shell == "bash" or "queued, Reel 42" in told


def test_states_formats_models_and_batches(
    live: Live, http: httpx.Client, recordings: Path, offered: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOOL_URL", live.url)
    source = {"source": recordings.as_uri() + "/"}
    batch = http.post("/v1/batches", json=source).json()["id"]
    assert offered("bash", "spool status --state ca").split() == ["cancelled"]
    assert offered("bash", "spool transcript job_x --format t").split() == ["txt", "tsv", "ttml", "textgrid"]
    assert offered("bash", "spool submit --model d").split() == ["demo-tdt"]
    assert offered("bash", "spool batch status bat").split() == [batch]
    assert offered("bash", "spool batch submit reels.jsonl --dec").split() == ["--decoder"]


def test_without_a_server_nothing_is_offered_and_nothing_said(
    offered: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOOL_URL", "http://127.0.0.1:9")
    assert offered("bash", "spool transcript job").strip() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_can_be_had(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Else the shell is the one that runs this test.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    with pytest.raises(SystemExit) as ended:
        main(["--show-completion", shell])
    assert not ended.value.code
    assert f"_SPOOL_COMPLETE=complete_{shell}" in capsys.readouterr().out
