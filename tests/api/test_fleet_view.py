"""What a process knows of the fleet, read by several threads."""

import threading

import pytest
from sqlalchemy import Connection

from api import fleet_view
from api.fleet_view import FleetState, FleetView
from spool.settings import Settings
from spool.store import Database


def test_a_read_that_began_earlier_does_not_replace_a_later_one(
    db: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, real = FleetView(db, settings), fleet_view._state_of
    has_read, may_end = threading.Event(), threading.Event()

    def read_slowly(tx: Connection) -> FleetState:
        state = real(tx)
        if threading.current_thread() is slow:
            has_read.set()
            assert may_end.wait(30)
        return state

    monkeypatch.setattr(fleet_view, "_state_of", read_slowly)
    slow = threading.Thread(target=view.read)
    slow.start()
    assert has_read.wait(30)
    later = view.read()
    may_end.set()
    slow.join()
    assert view.latest is later
