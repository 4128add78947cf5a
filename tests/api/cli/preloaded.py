"""The `spool` command without its start-up: a process that has it loaded already and forks for each call.

For tests that run many commands in a shell: what is called `spool` there hands its arguments, folder,
environment and standard streams over to that process, and ends as the fork does.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.api.cli.commands import ROOT

_CALL = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({path!r})
    told = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(line, [len(told).to_bytes(4, "big")], [0, 1, 2])
    line.sendall(told)
    os._exit(int(line.makefile().read() or 70))
"""


@contextmanager
def spool_on_path(folder: Path, environ: dict[str, str]) -> Iterator[dict[str, str]]:
    """An environment in which `spool` is found, for as long as the block lasts."""
    address = folder / "spool.sock"
    command = folder / "bin" / "spool"
    command.parent.mkdir(parents=True)
    command.write_text(_CALL.format(python=sys.executable, path=str(address)))
    command.chmod(0o755)
    serving = [sys.executable, "-W", "error", "-m", "tests.api.cli.preloaded", str(address)]
    process = subprocess.Popen(serving, cwd=ROOT, env=environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline(), "it listens"
        yield environ | {"PATH": f"{command.parent}:{environ['PATH']}"}
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def _serve(address: str) -> None:
    from api.cli.main import COMMANDS, build_app, main

    app = build_app()
    for name in COMMANDS:
        app[name]  # imports it

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("listening", flush=True)
        while True:
            line, _ = listener.accept()
            with line:
                size, streams, _, _ = socket.recv_fds(line, 4, 3)
                told = line.makefile("rb").read(int.from_bytes(size, "big"))
                child = os.fork()
                if not child:
                    listener.close()
                    line.close()
                    arguments, folder, environ = json.loads(told)
                    _run(main, arguments, folder, environ, streams)
                for stream in streams:
                    os.close(stream)
                _, status = os.waitpid(child, 0)
                line.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _run(
    main: Callable[[list[str]], None],
    arguments: list[str],
    folder: str,
    environ: dict[str, str],
    streams: list[int],
) -> None:
    code = 70
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        main(arguments)
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
