"""What `spool-worker run` is, with the counting model of `ops.testbed.counting_model` and short pauses.

`SPOOL_TEST_CLOCK_SHIFT` sets this process's clock ahead by so many seconds (or back), as on a machine whose
clock is wrong.
"""

import os
import sys
import time


def shift_clock(seconds: int) -> None:
    seconds_since, nanos_since = time.time, time.time_ns
    time.time = lambda: seconds_since() + seconds
    time.time_ns = lambda: nanos_since() + seconds * 1_000_000_000


def main() -> int:
    shift_clock(int(os.environ.get("SPOOL_TEST_CLOCK_SHIFT", "0")))
    from ops.testbed.counting_model import LOADER
    from spool.logs import configure_logs
    from spool.settings import load_settings
    from worker.jobs.retry import RetryPolicy
    from worker.tasks import run_worker

    settings = load_settings()
    configure_logs(settings.log_json)
    return run_worker(settings, loader=LOADER, retry=RetryPolicy(12, 0.2, 1.0))


if __name__ == "__main__":
    sys.exit(main())
