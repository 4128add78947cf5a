"""What a command says if the packages that it needs are not installed: they come with extras of Spool."""

import sys
from typing import NoReturn

_OWN = {"api", "kernels", "migrations", "spool", "worker"}


def refuse_without_extra(error: ModuleNotFoundError, command: str, extras: str) -> NoReturn:
    """Exit with a sentence that names the `extras` of which one has the missing package. Raises the error
    itself for a module of our own."""
    missing = (error.name or "").partition(".")[0]
    if not missing or missing in _OWN:
        raise error
    print(f"{command}: the package {missing} is not installed; {extras}", file=sys.stderr)  # noqa: T201
    raise SystemExit(1) from None
