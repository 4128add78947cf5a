"""The soak in small: the schedule depends on its seed alone, repeats are counted, and a short one holds."""

import pytest

from ops.soak.report import repeated_decodings
from ops.soak.run import main
from ops.soak.schedule import meanings, schedule
from ops.testbed.counting_model import Decoding

SECOND = 1_000_000_000


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    faults = list(meanings("postgresql", "s3"))
    plan = schedule(7, 2000, faults, 66, ("alpha", "beta"))

    assert (
        plan == schedule(7, 2000, faults, 66, ("alpha", "beta")) != schedule(8, 2000, faults, 66, ("alpha",))
    )
    assert [one.after for one in plan] == sorted(one.after for one in plan)
    assert plan[-1].after <= 1800
    assert {one.fault for one in plan} == set(faults), "each kind comes about as often"


def test_repeats_on_a_device_that_died_stand_apart() -> None:
    first = [Decoding("early", 10, 1, 1 * SECOND), Decoding("one", 10, 1, 2 * SECOND)]
    first += [Decoding("two", 10, 1, 3 * SECOND), Decoding("asleep", 10, 2, 4 * SECOND)]
    again = [Decoding("early", 10, 3, 8 * SECOND), Decoding("two", 10, 3, 9 * SECOND)]
    again += [Decoding("asleep", 10, 3, 10 * SECOND), Decoding("other", 10, 2, 21 * SECOND)]
    again += [Decoding("more", 10, 2, 22 * SECOND), Decoding("other", 10, 2, 23 * SECOND)]

    repeated = repeated_decodings([*first, *again], stopped=[(5.0, 9.0)])

    assert (repeated.decodings, repeated.samples) == (10, 100)
    assert repeated.in_flight == 2, "`two` was in the last batches of its process, `asleep` around a sleep"
    assert (repeated.besides, repeated.besides_samples) == (2, 20), (
        "`early` could have been saved, `other` was no death"
    )


@pytest.mark.timeout(600)
def test_a_short_soak_holds(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--jobs", "16", "--long", "1", "--long-seconds", "100", "--number", "6", "--seed", "5"]
    kinds = "worker-kill,engine-kill,api-kill,redis-flush,failpoint,database-lock"
    stack = ["--database", "sqlite", "--objects", "folder", "--model", "tones", "--lease", "6"]
    # A busy machine may not save a chunk within a lease, and of so few recordings one is much.
    stack += ["--most-repeated", "0.3"]

    code = main([*arguments, *stack, "--faults", kinds])

    output = capsys.readouterr().out
    assert code == 0, output
    assert "17 recordings" in output
    assert "lost: 0; double: 0" in output
    assert "every law holds" in output
