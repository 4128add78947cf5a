"""Reading from a share that may stop answering: a call to one whose server is gone never returns.

So that it holds no job, each call is made in another thread and waited for, but not for long. A call that
does not return keeps that thread until the share is back; what is to be closed is closed then.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from itertools import islice
from typing import Protocol, TypeVar

from spool import clock
from spool.errors import StorageError

ANSWER_SECONDS = 10.0
"""How long a disk or share may take to answer."""
ITEMS_A_CALL = 16
"""How many items are read in one call; handing over a block of audio by itself costs more than reading it."""

T = TypeVar("T")
C = TypeVar("C", bound="Closable")


class Closable(Protocol):
    """What is opened and closed."""

    def close(self) -> None: ...


class Answering:
    """Calls about one recording, `name` in messages, one at a time. `threaded`: it may lie on a share; else
    the calls are made directly. To be used as a context manager, which ends the thread."""

    def __init__(self, name: str, *, threaded: bool) -> None:
        self._name = name
        self._threaded = threaded
        self._calls: clock.Queue[tuple[Callable[[], object], Future[object]] | None] = clock.Queue()
        self._stuck = False
        self._thread: clock.Thread | None = None

    def __enter__(self) -> "Answering":
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.put(None)

    def read_directly(self) -> None:
        """Make the calls that follow directly: the share answers, and what is left to read is little."""
        self._threaded = False

    def call(self, function: Callable[[], T]) -> T:
        """What the function returns or raises. Raises StorageError if it does not return in time, and from
        then on at once."""
        return self._wait(self._begin(function)) if self._threaded else function()

    def _begin(self, function: Callable[[], T]) -> "Future[T]":
        if self._stuck:
            raise self._error
        if self._thread is None:
            self._thread = clock.Thread(target=self._run, name="spool-share", daemon=True)
            self._thread.start()
        answer: Future[T] = clock.Future()
        self._calls.put((function, answer))  # type: ignore[arg-type]
        return answer

    def _wait(self, answer: "Future[T]") -> T:
        try:
            return answer.result(ANSWER_SECONDS)
        except NotYet:
            if answer.done():  # just now, or with a TimeoutError of its own
                return answer.result()
            self._stuck = True
            raise self._error from None

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """The items, several a call, the next ones while these are used. Raises as `call`, after the items
        before."""
        if not self._threaded:
            yield from items
            return
        source = iter(items)

        def read() -> tuple[list[T], Exception | None]:
            taken: list[T] = []
            try:
                for item in islice(source, ITEMS_A_CALL):
                    taken.append(item)  # noqa: PERF402 - those before an error count
            except Exception as error:  # noqa: BLE001 - raised again once these are used
                return taken, error
            return taken, None

        coming = self._begin(read)
        while True:
            taken, error = self._wait(coming)
            if taken and error is None:
                coming = self._begin(read)
            yield from taken
            if error is not None:
                raise error
            if not taken:
                return

    @contextmanager
    def opened(self, function: Callable[[], C]) -> Iterator[C]:
        """What the function opens, closed after the block, or when the share is back."""
        file = self.call(function)
        try:
            yield file
        finally:
            if self._stuck:
                self._calls.put((file.close, Future()))
            else:
                self.call(file.close)

    @property
    def _error(self) -> StorageError:
        return StorageError(
            f"{self._name}: the disk or share did not answer a read within {ANSWER_SECONDS:g} s."
        )

    def _run(self) -> None:
        while (task := self._calls.get()) is not None:
            function, answer = task
            try:
                answer.set_result(function())
            except BaseException as error:  # noqa: BLE001 - whoever waits has to know
                answer.set_exception(error)
