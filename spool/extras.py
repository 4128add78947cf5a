"""What a command says if the packages that it needs are not installed: they come with extras of Spool."""

import sys
from typing import NoReturn

_OWN = {"api", "kernels", "migrations", "spool", "worker"}


def refuse_without_extra(error: ImportError, command: str, extras: str) -> NoReturn:
    """Exit with a sentence that names the `extras` of which one has the missing package. Raises the error
    itself if no package is missing."""
    # cyclopts raises an ImportError of its own for a command's module, from the one that names the package.
    cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
    missing = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
    if not missing or missing in _OWN:
        raise error
    print(f"{command}: the package {missing} is not installed; {extras}", file=sys.stderr)  # noqa: T201
    raise SystemExit(1) from None
