"""Where the `spool` command starts, also without the packages that it needs."""

from spool.extras import refuse_without_extra
from spool.loading import begin_loading

_EXTRAS = (
    "install 'spool-transcribe[cli]' to use a server elsewhere, "
    "or 'spool-transcribe[api,worker,embedded]' to run one here."
)


def main() -> None:
    """Run the command line."""
    begin_loading()
    try:
        from api.cli.main import main as run

        run()
    except ImportError as error:
        refuse_without_extra(error, "spool", _EXTRAS)
