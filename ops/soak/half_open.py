"""A proxy on a Unix socket that can fall silent: bytes go in and nothing comes out, and nobody hangs up."""

import contextlib
import socket
import threading
from pathlib import Path


class HalfOpenProxy:
    """Passes connections on to `target`. What was open when `swallow` began stays dead for ever, as a path
    through a broken network does; `restore` lets new connections through."""

    def __init__(self, path: Path, target: Path) -> None:
        self.folder = path.parent
        self.url = f"redis+socket://{path}"
        self.swallowed = 0
        self._target = str(target)
        self._silent = threading.Event()
        self._open: list[socket.socket] = []
        self._generation = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        self._generation += 1
        self._silent.set()

    def restore(self) -> None:
        self._silent.clear()

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            self._open += [near, far]
            try:
                far.connect(self._target)
            except OSError:
                near.close()
                continue
            dead = -1 if self._silent.is_set() else self._generation
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink, dead), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, generation: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if generation != self._generation:
                    self.swallowed += len(data)
                    continue
                sink.sendall(data)
        if generation == self._generation:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
