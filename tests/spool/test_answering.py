"""Reads from a share that stops answering: none can be made to here, so the calls wait for an event."""

import threading
from collections.abc import Callable, Iterator

import pytest

from spool.answering import Answering
from spool.errors import AudioUnreadable, StorageError


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until the event is set nothing is answered."""
    monkeypatch.setattr("spool.answering.ANSWER_SECONDS", 0.1)
    there = threading.Event()
    yield there
    there.set()


class Tape:
    """Blocks that end with an error, or stop coming."""

    def __init__(self, blocks: int, then: Callable[[], object] = lambda: None) -> None:
        self._blocks = blocks
        self._then = then
        self.closed = threading.Event()

    def blocks(self) -> Iterator[int]:
        yield from range(self._blocks)
        self._then()

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("blocks", [0, 1, 16, 41])
def test_every_block_comes_once_and_in_order(threaded: bool, blocks: int) -> None:
    tape = Tape(blocks)
    with Answering("a.wav", threaded=threaded) as answering, answering.opened(lambda: tape) as opened:
        assert list(answering.each(opened.blocks())) == list(range(blocks))
    assert tape.closed.is_set()


@pytest.mark.parametrize("threaded", [True, False])
def test_an_error_comes_after_the_blocks_before_it(threaded: bool) -> None:
    def fail() -> None:
        raise AudioUnreadable("a.wav: damaged")

    read: list[int] = []
    with Answering("a.wav", threaded=threaded) as answering, pytest.raises(AudioUnreadable, match="damaged"):
        read.extend(answering.each(Tape(19, fail).blocks()))
    with (
        Answering("a.wav", threaded=threaded) as answering,
        pytest.raises(TimeoutError, match="of the system"),
    ):
        answering.call(lambda: (_ for _ in ()).throw(TimeoutError("of the system")))
    assert read == list(range(19))


def test_a_read_that_never_returns_is_given_up_and_closed_when_it_does(server: threading.Event) -> None:
    tape = Tape(3, server.wait)
    read: list[int] = []
    with (
        pytest.raises(StorageError, match=r"a\.wav: the disk or share did not answer a read within 0\.1 s"),
        Answering("a.wav", threaded=True) as answering,
        answering.opened(lambda: tape) as opened,
    ):
        read.extend(answering.each(opened.blocks()))
    with pytest.raises(StorageError, match="did not answer"):
        answering.call(lambda: None)
    assert not tape.closed.is_set(), "whoever reads it still uses it"
    server.set()
    assert tape.closed.wait(10)


def test_what_is_little_is_read_by_the_caller_itself() -> None:
    with Answering("a.wav", threaded=True) as answering:
        assert answering.call(threading.get_ident) != threading.get_ident()
        answering.read_directly()
        assert answering.call(threading.get_ident) == threading.get_ident()
