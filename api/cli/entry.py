"""Where the `spool` command starts, also without the packages that it needs."""

import gc

from spool.extras import refuse_without_extra

_EXTRAS = (
    "install 'spool-transcribe[cli]' to use a server elsewhere, "
    "or 'spool-transcribe[api,worker,embedded]' to run one here."
)


def main() -> None:
    """Run the command line."""
    # With Python's default, collecting cycles while modules load is a tenth of a short command.
    gc.set_threshold(50_000)
    try:
        from api.cli.main import main as run

        run()
    except ImportError as error:
        refuse_without_extra(error, "spool", _EXTRAS)
