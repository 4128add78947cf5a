"""Many at once, or one alone."""

import threading

from ops.testbed.waiting import until
from worker.service import JobGate


def never() -> bool:
    return False


def test_one_that_wants_to_be_alone_waits_for_the_others_and_keeps_new_ones_out() -> None:
    gate = JobGate()
    leave, alone_in, leave_alone, third_in = (threading.Event() for _ in range(4))

    def alone() -> None:
        with gate.alone(never) as here:
            assert here
            assert gate.taken == 1
            alone_in.set()
            leave_alone.wait()

    def third() -> None:
        with gate.share(never):
            third_in.set()

    with gate.share(never) as here:
        assert here
        waiting = threading.Thread(target=alone)
        waiting.start()
        until(lambda: gate._wanted_alone == 1, "it waits")
        late = threading.Thread(target=third)
        late.start()
        assert not alone_in.wait(0.1)
    until(alone_in.is_set, "it is alone")
    assert not third_in.is_set()
    leave.set()
    leave_alone.set()
    until(third_in.is_set, "the third came in")
    waiting.join()
    late.join()
    assert gate.taken == 0


def test_waiting_ends_when_it_is_pointless() -> None:
    gate = JobGate()
    with gate.share(never), gate.alone(lambda: True) as here:
        assert not here
        assert gate.taken == 1
    with gate.share(lambda: True) as here:
        assert not here
    assert gate.taken == 0
