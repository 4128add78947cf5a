"""The commands of docs/first-hour.md, typed as they stand there into a shell, on a stack of its own."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api.cli.commands import ROOT, Commands, processes_of
from tests.api.cli.preloaded import spool_on_path

pytestmark = pytest.mark.integration

TEXT = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")


@dataclass
class Typed:
    """A command of the text, what came of it, and how it ended."""

    command: str
    output: str = ""
    code: int = -1


def documented() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    return [
        line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")
    ]


def typed(commands: list[str], folder: Path, environ: dict[str, str]) -> dict[str, Typed]:
    """Each command and what it printed, all in one shell as a person has it."""
    script = "\n".join(f'{command}\necho "@@ $?"' for command in commands)
    done = subprocess.run(
        ["bash"],
        input=script,
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    parts = re.split(r"@@ (\d+)\n", done.stdout)
    outcomes = zip(commands, parts[::2], parts[1::2], strict=False)
    told = {command: Typed(command, output, int(code)) for command, output, code in outcomes}
    assert len(told) == len(commands), done.stdout
    return told


@pytest.mark.timeout(420)  # a stack, and everything it is asked, on a machine with other work
def test_the_first_hour_goes_as_it_is_told(tmp_path: Path) -> None:
    # Given a folder of recordings, one of which is none
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    for name, sample in (
        ("reel 1.flac", "demo-tdt/digits/string-1.flac"),
        ("Grüße.flac", "demo-tdt/words/happy-1.flac"),
        ("talk.flac", "open/conversation/two-speakers.flac"),
    ):
        shutil.copy(ROOT / "samples" / sample, recordings / name)
    (recordings / "letter.wav").write_text("Dear sirs, the reel is lost.")
    commands = Commands(tmp_path / "home", {"SPOOL_API_PORT": "0"})
    environ = commands.environ | {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    # When everything is typed that the text shows
    with spool_on_path(tmp_path / "shell", environ) as shell:
        try:
            told = typed(documented(), tmp_path, shell)
        finally:
            commands.run("down")

    # Then each command ends as the text says, and prints what it is about
    shown = "\n".join(f"$ {one.command}\n{one.output}[{one.code}]" for one in told.values())
    for one in told.values():
        failing = "# exit code 1" in one.command or "# exit code 4" in one.command
        assert (one.code == int(one.command[-1])) if failing else one.code == 0, shown

    def output(beginning: str) -> str:
        (found,) = [one.output for one in told.values() if one.command.startswith(beginning)]
        return found

    assert "in 3 recordings" in output("spool plan"), shown
    assert "3 done, 1 failed" in output("spool batch submit"), shown
    assert "3 unchanged" in output("spool submit"), shown
    assert "letter.wav" in output("spool status --state failed"), shown
    assert "Grüße.flac" in output("spool search happy"), shown
    for search in ("spool search '\"two six", "spool search 2"):
        assert "reel 1.flac" in output(search), shown
    assert "reel 1.flac" in output("spool review list"), shown
    assert output("spool transcript $REEL --format srt").count("Two, six zero three") == 1, shown
    assert "Two," in output("spool edits list"), shown
    assert "speaker_1" in output("spool speakers list"), shown
    assert "Ada Lund: " in output("spool transcript $TALK"), shown
    assert "Grüße.flac.srt" in output("ls transcripts"), shown
    assert "reel 1.flac.docx" in output("ls transcripts"), shown
    assert "oral-history: " in output("spool costs"), shown
    assert [one.output for one in told.values() if "was deleted on" in one.output], shown
    assert "no breaches" in output("spool audit"), shown
    assert processes_of(commands.home) == []
