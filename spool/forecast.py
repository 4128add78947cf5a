"""What a batch will still take and cost, from what it took and cost so far, with the grounds in words.

Pure arithmetic over sums: the audio left, the pace of the last minutes, the money an hour of audio came to.
Where there is nothing to judge by it says so instead of guessing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outlook:
    """Seconds of audio and of wall time, money in nano-units; None where nothing can be said yet."""

    audio_left_seconds: float | None
    audio_basis: str
    pace: float | None
    """Seconds of audio a second of wall time."""
    time_left_seconds: float | None
    time_basis: str
    expected_nanos: int | None
    """What the whole batch will have cost."""
    cost_basis: str


@dataclass(frozen=True, slots=True)
class Sums:
    """What is known of a batch: see `spool.store.standing.Standing`, whose sums these are."""

    open_jobs: int
    open_known_seconds: float
    open_unknown: int
    known: int
    known_seconds: float
    billed_audio_seconds: float
    billable_nanos: int
    recent_audio_seconds: float
    recent_wall_seconds: float


def outlook(sums: Sums) -> Outlook:
    """How much is left, how long that takes at the present pace, and what the whole will cost."""
    left, audio_basis = _audio_left(sums)
    pace = None
    if sums.recent_audio_seconds > 0 and sums.recent_wall_seconds > 0:
        pace = sums.recent_audio_seconds / sums.recent_wall_seconds
    time_left, time_basis = _time_left(sums, left, pace)
    expected, cost_basis = _cost(sums, left)
    return Outlook(left, audio_basis, pace, time_left, time_basis, expected, cost_basis)


def _audio_left(sums: Sums) -> tuple[float | None, str]:
    if not sums.open_jobs:
        return 0.0, "No job is waiting or running."
    if not sums.open_unknown:
        return sums.open_known_seconds, "The length of every open recording is known."
    if not sums.known:
        return None, "No recording of this batch has been opened yet, so no length is known."
    mean = sums.known_seconds / sums.known
    basis = (
        f"{sums.open_unknown} open recordings have not been opened; each is taken as {mean:.0f} s, "
        f"the mean of the {sums.known} whose length is known."
    )
    return sums.open_known_seconds + sums.open_unknown * mean, basis


def _time_left(sums: Sums, left: float | None, pace: float | None) -> tuple[float | None, str]:
    if not sums.open_jobs:
        return 0.0, "No job is waiting or running."
    if left is None:
        return None, "Unknown until a recording has been opened."
    if pace is None:
        return None, "Nothing of this batch was decoded in the last minutes, so there is no pace to judge by."
    basis = (
        f"The audio left, at {pace:.1f} s of audio a second: the pace of the last "
        f"{sums.recent_wall_seconds:.0f} s."
    )
    return left / pace, basis


def _cost(sums: Sums, left: float | None) -> tuple[int | None, str]:
    if not sums.open_jobs:
        return sums.billable_nanos, "All has ended: this is what it cost."
    if left is None:
        return None, "Unknown until a recording has been opened."
    if sums.billed_audio_seconds <= 0:
        return None, "Nothing has been billed yet, so there is no price of an hour of audio to judge by."
    each = sums.billable_nanos / sums.billed_audio_seconds
    hours = sums.billed_audio_seconds / 3600
    basis = f"So far, and the audio left at the mean price of the {hours:.2f} h of audio billed so far."
    return sums.billable_nanos + round(left * each), basis
