"""Where the `spool-worker` command starts, also without the packages that it needs."""

from spool.extras import refuse_without_extra
from spool.loading import begin_loading


def main() -> None:
    """Run the command line."""
    begin_loading()
    try:
        from worker.cli.main import main as run

        run()
    except ImportError as error:
        refuse_without_extra(error, "spool-worker", "install 'spool-transcribe[worker]'.")
