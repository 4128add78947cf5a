"""A whole worker process with the tiny model of `fake_models`: what `spool-worker run` is, for tests."""

import sys


def main() -> int:
    from spool.logs import configure_logs
    from spool.settings import load_settings
    from tests.worker.fake_models import LOADER
    from worker.app import Worker
    from worker.job import RetryPolicy

    settings = load_settings()
    configure_logs(settings.log_json)
    return Worker(settings, loader=LOADER, retry=RetryPolicy(3, 0.2, 0.5)).run()


if __name__ == "__main__":
    sys.exit(main())
