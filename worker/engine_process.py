"""One engine child from its start to its end, as the parent sees it.

Knows the process and its pipe; knows nothing of utterances or of what a death means: that is
`worker.engine`. Never imports MLX on the parent's side.
"""

import atexit
import contextlib
import multiprocessing
import threading
from multiprocessing.connection import Connection

from worker.engine_protocol import EngineOptions, Report, Request, Stop
from worker.shared_audio import SlotLayout

STOP_SECONDS = 5.0


def _child(connection: "Connection[Report, Request]", layout: SlotLayout, options: EngineOptions) -> None:
    """The child's first function. The BLAS that MLX is to use must be in the process before MLX is."""
    from worker.blas import preload_blas

    preload_blas()
    from worker.engine_child import serve

    serve(connection, layout, options)


class EngineProcess:
    """A spawned child and the pipe to it. Anything that touched Metal must not fork, so it is never
    forked."""

    def __init__(self, layout: SlotLayout, options: EngineOptions) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection: Connection[Request, Report]
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_child, args=(theirs, layout, options), name="spool-engine", daemon=True
        )
        self._sending = threading.Lock()
        self._reaping = threading.Lock()
        self._process.start()
        theirs.close()  # or the child's death would never end the pipe
        # multiprocessing's own exit hook sends SIGTERM, which the child ignores, and then waits for ever.
        atexit.register(self.kill)

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return self._process.pid

    def send(self, request: Request) -> None:
        """Send a request. To a dead child it goes nowhere: the reader of its reports notices the death."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.send(request)

    def receive(self) -> Report | None:
        """Wait for the next report; None once the child is gone and everything it said was read."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return None

    def stop(self) -> None:
        """Tell the child to end; kill it when it does not."""
        self.send(Stop())
        with self._reaping:
            self._process.join(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the child for certain."""
        with self._reaping:
            if self._process.is_alive():
                self._process.kill()
            self._process.join()
        atexit.unregister(self.kill)

    def bury(self) -> str:
        """Release what is left of a dead child and say how it ended. Only the reader of its reports may
        call this."""
        self.kill()
        self._connection.close()
        code = self._process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
