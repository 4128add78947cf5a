"""Signals that stop a stack."""

import os
import signal
import threading

import pytest

from api.cli.stack import interruptible


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_arrives_twice_interrupts_once(number: signal.Signals) -> None:
    steps = []
    before = signal.getsignal(number)

    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            os.kill(os.getpid(), number)
            threading.Event().wait(30)
        finally:
            steps.append("cleaning up")
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append("cleaned up")

    assert steps == ["cleaning up", "cleaned up"]
    assert signal.getsignal(number) == before
