"""What an engine has done so far, in counts that only grow. Knows no process."""

from dataclasses import dataclass, field

from spool.work_counts import WorkCounts


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counts since the engine started. `child_busy_ns` is the running child's own total; the rest is summed
    over children. `shapes` tells of batches that answered how large and how well filled they were."""

    busy_ns: int = 0
    lost_ns: int = 0
    load_ns: int = 0
    batches: int = 0
    utterances: int = 0
    restarts: int = 0
    child_busy_ns: int = 0
    died_ns: int = 0
    loads: int = 0
    """Models that were loaded, each time."""
    shapes: WorkCounts = field(default_factory=WorkCounts)
