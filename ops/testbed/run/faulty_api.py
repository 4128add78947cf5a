"""What `spool serve` is, with the clock of `ops.testbed.run.faulty_worker`.

`SPOOL_TEST_BATCH_BLOCK` makes the blocks in which a batch is written as small as that.
"""

import os

from ops.testbed.run.faulty_worker import shift_clock


def main() -> None:
    shift_clock(int(os.environ.get("SPOOL_TEST_CLOCK_SHIFT", "0")))
    from api.cli.main import main as spool
    from api.submission import batches

    batches.BLOCK = int(os.environ.get("SPOOL_TEST_BATCH_BLOCK", batches.BLOCK))
    spool()


if __name__ == "__main__":
    main()
