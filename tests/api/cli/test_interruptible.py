"""Signals that stop a stack."""

import os
import signal
import threading

import pytest

from api.cli.stack import interruptible


def stopped_while_it_cleans_up(number: signal.Signals, steps: list[str]) -> None:
    with interruptible():
        try:
            os.kill(os.getpid(), number)
            threading.Event().wait(30)
        finally:
            steps.append("cleaning up")
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append("cleaned up")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_arrives_twice_interrupts_once(number: signal.Signals) -> None:
    steps: list[str] = []
    before = signal.getsignal(number)

    with pytest.raises(KeyboardInterrupt):
        stopped_while_it_cleans_up(number, steps)

    assert steps == ["cleaning up", "cleaned up"]
    assert signal.getsignal(number) == before
