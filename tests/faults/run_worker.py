"""What `spool-worker run` is, with the counting model of `tests.faults.model` and short pauses."""

import sys


def main() -> int:
    from spool.logs import configure_logs
    from spool.settings import load_settings
    from tests.faults.model import LOADER
    from worker.app import Worker
    from worker.job import RetryPolicy

    settings = load_settings()
    configure_logs(settings.log_json)
    return Worker(settings, loader=LOADER, retry=RetryPolicy(12, 0.2, 1.0)).run()


if __name__ == "__main__":
    sys.exit(main())
