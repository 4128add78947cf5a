"""A whole worker process for tests: `spool-worker run` with the tiny model, or with TEST_LOADER."""

import os
import sys


def main() -> int:
    from spool.logs import configure_logs
    from spool.settings import load_settings
    from tests.worker.fake_models import LOADER
    from worker.app import Worker
    from worker.patience import RetryPolicy

    settings = load_settings()
    configure_logs(settings.log_json)
    return Worker(
        settings, loader=os.environ.get("TEST_LOADER", LOADER), retry=RetryPolicy(3, 0.2, 0.5)
    ).run()


if __name__ == "__main__":
    sys.exit(main())
