"""The subcommands that run Spool on this machine: up, down, serve, demo.

They start each part as a process by its command and import neither worker nor kernels.
"""

import math
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.connection import err, out
from api.local.demo import run_demo
from api.local.instance import Running, down_command, find_running, lock_holder
from api.local.processes import is_alive, log_tail
from api.local.stack import Stack, StackError
from api.local.token import local_token
from spool import clock
from spool.settings import load_settings, unknown_variables

_UP_TIMEOUT_S = 300.0
_DOWN_TIMEOUT_S = 120.0
_POLL_S = 0.2
_SAME_INTERRUPT_S = 1.0

Home = Annotated[
    Path | None,
    Parameter(help="Folder for all data. Default: SPOOL_HOME, else that of the running stack, else ./var."),
]
Port = Annotated[
    int | None, Parameter(validator=Number(gte=0, lte=65535), help="Port of the API; 0 picks a free one.")
]


def up(
    *,
    home: Home = None,
    port: Port = None,
    sources: Annotated[
        list[Path] | None,
        Parameter(
            help="Folder that jobs may name as file:///…; repeat for several. Default: SPOOL_SOURCE_ROOTS."
        ),
    ] = None,
    detach: Annotated[bool, Parameter(help="Run in the background.")] = False,
) -> None:
    """Run the API, a worker and, if needed, a broker on this machine.

    If it runs already, say where.
    """
    environ = dict(os.environ)
    if home is not None:
        environ["SPOOL_HOME"] = str(home.resolve())
    if port is not None:
        environ["SPOOL_API_PORT"] = str(port)
    # One person's machine: a job may name any model of the catalogue, and the first one fetches it.
    environ.setdefault("SPOOL_FETCH_MODELS", "true")
    if sources:
        environ["SPOOL_SOURCE_ROOTS"] = os.pathsep.join(str(folder.resolve()) for folder in sources)
    already = find_running(load_settings(environ).home)
    if already is not None:
        out.print(f"already running at {already.url}", soft_wrap=True)
        _print_running(already, down_command(home), home)
        return
    for sentence in unknown_variables(environ):
        err.print(Text(sentence, style="yellow"))
    if detach:
        _print_running(_detach(environ), down_command(home), home)
        return
    with interruptible():
        stack = Stack(environ, lambda step: err.print(f"[dim]{step}[/dim]"))
        try:
            with stack:
                running = find_running(stack.settings.home)
                if running is not None:
                    _print_running(running, f"Ctrl-C, or {down_command(home)}", home)
                while True:
                    stack.check()
                    clock.sleep(_POLL_S)
        except KeyboardInterrupt:
            pass
    for survivor in stack.left_behind:
        err.print(Text(f"still running: {survivor.pid} {survivor.command}", style="red"))
    if stack.left_behind:
        raise SystemExit(1)


def down(home: Home = None) -> None:
    """Stop what `spool up` started."""
    folder = home.resolve() if home is not None else load_settings().home
    pid = lock_holder(folder)
    if pid is None:
        out.print(f"nothing is running in {folder}")
        return
    os.kill(pid, signal.SIGTERM)
    deadline = clock.monotonic() + _DOWN_TIMEOUT_S
    with err.status("stopping"):
        # The lock is released a moment before the process ends.
        while lock_holder(folder) == pid or is_alive(pid):
            if clock.monotonic() > deadline:
                raise StackError(f"Process {pid} did not stop within {_DOWN_TIMEOUT_S:.0f} s.")
            clock.sleep(_POLL_S)
    out.print("stopped")


def serve(
    *,
    host: Annotated[str | None, Parameter(help="Address to listen on. Default: SPOOL_API_HOST.")] = None,
    port: Port = None,
    announce: Annotated[
        Path | None, Parameter(help="Write the address to this file once requests are answered.")
    ] = None,
) -> None:
    """Run only the HTTP API.

    It needs a database and a broker that are already running.
    """
    # Only this command needs the web framework; the others start faster without it.
    from api.server.run import serve as run_server

    overrides: dict[str, Any] = {"api_host": host, "api_port": port}
    settings = load_settings(**{name: value for name, value in overrides.items() if value is not None})
    run_server(settings, announce)


def demo(
    samples: Annotated[Path, Parameter(name="FOLDER", help="Recordings, optionally with manifest.jsonl.")],
    /,
    *,
    base: Annotated[Path, Parameter(help="Folder for the demo's temporary data.")] = Path("var/demo"),
) -> None:
    """Transcribe a folder of samples and report words and costs.

    Runs in a stack of its own, which is removed afterwards.
    """
    with interruptible():
        outcome = run_demo(samples, base, os.environ, out)
    raise SystemExit(outcome.exit_code)


def _detach(environ: dict[str, str]) -> Running:
    settings = load_settings(environ)
    log = settings.home / "logs" / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        start = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "api.cli.main", "up"],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = clock.monotonic() + _UP_TIMEOUT_S
    with err.status("starting"):
        while True:
            running = find_running(settings.home)
            if running is not None and running.pid == process.pid:
                return running
            if process.poll() is not None or clock.monotonic() > deadline:
                raise StackError(f"Spool did not start. The end of {log}:\n{log_tail(log, start)}")
            clock.sleep(_POLL_S)


def _print_running(running: Running, stop: str, home: Path | None) -> None:
    token = local_token(Path(running.home))
    login = f"/#token={token}" if token else "/"
    # The other commands look for the server in SPOOL_HOME.
    use = [] if home is None else [("use", f"export SPOOL_HOME={shlex.quote(running.home)}")]
    rows = [
        ("page", f"{running.url}{login}"),
        ("API", running.url),
        ("docs", f"{running.url}/docs"),
        ("home", running.home),
        ("logs", running.log_folder),
        *use,
        ("stop", stop),
    ]
    for name, value in rows:
        out.print(Text.assemble((f"{name:<6}", "dim"), value), soft_wrap=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM and a closing terminal unwind like Ctrl-C within the block.

    A signal sent to `make` and its whole group arrives more than once. The later ones must not interrupt the
    cleanup that the first one started.
    """
    last = -math.inf

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal last
        since, last = clock.monotonic() - last, clock.monotonic()
        if since > _SAME_INTERRUPT_S:
            raise KeyboardInterrupt

    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, interrupt) for number in caught}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
