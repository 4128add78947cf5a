"""`SPOOL_*` variables that nobody reads: a misspelt setting would otherwise be ignored in silence.

A warning and no refusal, since a wrapper of one's own may keep variables of that name.
"""

import difflib
import os
from collections.abc import Iterator, Mapping

from spool.settings.environment import PREFIX, SECRETS
from spool.settings.fields import Settings

ELSEWHERE = {"URL", "KERNELS", "KERNEL_CACHE", "KERNEL_THREADS", "FAILPOINTS", "FAILPOINTS_FIRED"}
"""Read by the client command, by `kernels` and by `spool.failpoints`, and no settings."""
ALIKE = 0.75


def unknown_variables(environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """One sentence for each variable that looks like a setting and is none."""
    environ = os.environ if environ is None else environ
    known = {PREFIX + name.upper() for name in Settings.model_fields} | {PREFIX + name for name in ELSEWHERE}
    known |= {f"{PREFIX}{name.upper()}_FILE" for name in SECRETS}
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or name.upper() in known:
            continue
        near = difflib.get_close_matches(name.upper(), sorted(known), n=1, cutoff=ALIKE)
        hint = f"did you mean {near[0]}?" if near else "nothing reads it."
        yield f"{name} is no setting of Spool; {hint}"
