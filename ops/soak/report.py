"""The result of a soak in sentences: what was lost, done twice and repeated, and how each kind of fault was
recovered from.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from ops.testbed.counting_model import Decoding
from spool.audit.runner import AuditReport

RATE = 16_000
LATE_NS = 3_000_000_000  # what a worker does after it woke and before it knows that its leases are gone
Injection = tuple[str, str, float, float, float | None]


class Repeats(NamedTuple):
    """All decodings and their audio in samples, and which of them were repeats.

    `again_samples` is what was decoded beyond the chunks that jobs keep. The others count utterances that a
    model had been given before, for whichever job: two jobs with one recording that run at once are among
    them. `in_flight` are those whose earlier decoding was among the last two batches of an engine that died,
    or around a time in which it was stopped; nothing of them can have been saved. `besides` are all others.
    """

    decodings: int
    samples: int
    again_samples: int
    in_flight: int
    besides: int
    besides_samples: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that the soak found."""

    seed: int
    submitted: int
    jobs: int
    states: dict[str, int]
    again: int
    read: int
    """Transcripts that clients read meanwhile."""
    injected: list[Injection]
    deaths: int
    unexpected: list[str]
    """Processes that died although no fault killed them."""
    seconds: float
    verified_seconds: float
    """How long it took to settle and to verify, after `seconds`."""
    audio_seconds: float
    saved: int
    repeats: Repeats
    billable_ns: int
    wasted_ns: int
    orphans: int
    """Uploads whose API died before their row was written; removed."""
    breaches: list[str]
    """What the soak's own SQL found."""
    audit: AuditReport

    @property
    def held(self) -> bool:
        """Nothing lost, double or failed, every law kept, nothing died by itself."""
        return not self.breaches and not self.unexpected and self.audit.clean and self.jobs == self.submitted

    def document(self) -> dict[str, object]:
        """For machines."""
        return {
            "seed": self.seed,
            "submitted": self.submitted,
            "jobs": self.jobs,
            "states": self.states,
            "asked_again": self.again,
            "transcripts_read": self.read,
            "faults": len(self.injected),
            "deaths": self.deaths,
            "unexpected_deaths": self.unexpected,
            "seconds": round(self.seconds, 1),
            "verified_seconds": round(self.verified_seconds, 1),
            "audio_seconds": round(self.audio_seconds, 1),
            "chunks": self.saved,
            "repeated": self.repeats._asdict(),
            "engine_seconds_billable": round(self.billable_ns / 1e9, 3),
            "engine_seconds_wasted": round(self.wasted_ns / 1e9, 3),
            "orphans_removed": self.orphans,
            "breaches": self.breaches,
            "audit_breaches": dict(self.audit.counts),
        }


def repeated_decodings(
    given: Sequence[Decoding], stopped: Iterable[tuple[float, float]], kept_samples: int
) -> Repeats:
    """Count them. `stopped` are spans (s of the monotonic clock) in which an engine did not run,
    `kept_samples` is the audio of all chunks that jobs keep."""
    last: dict[int, list[int]] = {}
    for pid, batches in groupby(sorted(given, key=lambda one: (one.pid, one.begun_ns)), lambda one: one.pid):
        last[pid] = sorted({one.begun_ns for one in batches})[-2:]
    spans = [(int(begun * 1e9) - LATE_NS, int(ended * 1e9) + LATE_NS) for begun, ended in stopped]
    first: dict[str, Decoding] = {}
    in_flight = besides = besides_samples = 0
    for one in sorted(given, key=lambda one: one.begun_ns):
        earlier = first.get(one.digest)
        first[one.digest] = one
        if earlier is None:
            continue
        died = earlier.pid != one.pid and earlier.begun_ns in last[earlier.pid]
        if died or any(begun <= earlier.begun_ns <= ended for begun, ended in spans):
            in_flight += 1
        else:
            besides += 1
            besides_samples += one.samples
    samples = sum(one.samples for one in given)
    return Repeats(len(given), samples, samples - kept_samples, in_flight, besides, besides_samples)


def summary(outcome: Outcome) -> str:
    """For people: a line a kind of fault, then what it all came to."""
    kinds: dict[str, list[Injection]] = defaultdict(list)
    for one in outcome.injected:
        kinds[one[0]].append(one)
    lines = [
        "",
        "| fault | times | from its beginning to the next job that ended (s): median, longest |",
        "|---|---|---|",
    ]
    for name, ones in sorted(kinds.items()):
        waits = sorted(one[4] for one in ones if one[4] is not None)
        waited = f"{waits[len(waits) // 2]:.1f}, {waits[-1]:.1f}" if waits else "never seen"
        lines.append(f"| {name} | {len(ones)} | {waited} |")
    repeats = outcome.repeats
    again = repeats.in_flight + repeats.besides
    wasted = outcome.wasted_ns / max(1, outcome.billable_ns + outcome.wasted_ns)
    states = ", ".join(f"{number} {state}" for state, number in sorted(outcome.states.items()))
    lines += [
        "",
        f"seed {outcome.seed}: {outcome.submitted} recordings of {outcome.audio_seconds / 3600:.1f} h in "
        f"{outcome.seconds:.0f} s, verified in {outcome.verified_seconds:.0f} s; "
        f"{len(outcome.injected)} faults, {outcome.deaths} processes died",
        f"clients had to ask again {outcome.again} times and read {outcome.read} transcripts",
        f"jobs: {outcome.jobs} ({states})",
        f"decoded again: {repeats.again_samples / max(1, repeats.samples):.2%} of the audio",
        f"decodings: {repeats.decodings}, of which {again} of utterances that were decoded before "
        f"({again / max(1, repeats.decodings):.2%}): {repeats.in_flight} on a device that died or slept, "
        f"{repeats.besides} besides ({repeats.besides_samples / max(1, repeats.samples):.2%} of the audio)",
        f"engine time: {outcome.billable_ns / 1e9:.1f} s billable, {outcome.wasted_ns / 1e9:.2f} s wasted "
        f"({wasted:.2%})",
        f"uploads left without a job, and removed: {outcome.orphans}",
        f"audit: {outcome.audit.jobs} jobs, {outcome.audit.chunks} chunks, {outcome.audit.lines} lines, "
        f"{outcome.audit.workers} workers, {outcome.audit.objects} objects: "
        + ("every law holds" if outcome.audit.clean else f"BREACHES {dict(outcome.audit.counts)}"),
    ]
    lines.append(
        f"SQL of its own: {len(outcome.breaches)} breaches; deaths without a cause: {len(outcome.unexpected)}"
    )
    lines += [
        f"breach: {breach}"
        for breach in [*outcome.breaches, *outcome.audit.breaches[:10], *outcome.unexpected]
    ]
    lines.append(f"seed {outcome.seed} {'HELD' if outcome.held else 'DID NOT HOLD'}")
    return "\n".join(lines)
