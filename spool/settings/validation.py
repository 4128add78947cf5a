"""Which settings contradict each other, and which `SPOOL_*` variables are not settings.

A contradiction is refused with one sentence that names the variable. An unknown variable gets only a warning,
since it may be misspelt, or belong to a wrapper script.
"""

import difflib
import ipaddress
import os
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from spool.domain.pricing import price_micros, prices_in
from spool.errors import SettingsError
from spool.settings.client import PREFIX
from spool.settings.model import SECRETS, Settings

# Feature frames (10 ms) of the longest chunk, overlaps included.
LONGEST_CHUNK_FRAMES = 4_000
FRAME_BUDGET = 48_000
"""Feature frames in a device batch where memory is not the limit: larger ones were no faster."""
MAX_BATCH = 64


def refuse_contradictions(settings: Settings) -> None:
    """Raise SettingsError for the first contradiction found."""
    for check in (_check_stores, _check_api, _check_worker, _check_money):
        check(settings)


def _check_stores(settings: Settings) -> None:
    dialect = settings.database_url.partition(":")[0].partition("+")[0]
    if dialect not in {"sqlite", "postgresql", "postgres"}:
        raise SettingsError("SPOOL_DATABASE_URL has to be a sqlite: or postgresql: URL.")
    if settings.redis_url.partition(":")[0] not in {"redis", "rediss", "redis+socket"}:
        raise SettingsError("SPOOL_REDIS_URL has to be a redis:, rediss: or redis+socket: URL.")
    objects = urlsplit(settings.objects)
    if objects.scheme not in {"file", "s3"}:
        raise SettingsError("SPOOL_OBJECTS has to be file:///folder or s3://bucket/prefix.")
    if objects.scheme == "s3" and not objects.netloc:
        raise SettingsError("SPOOL_OBJECTS is an s3: URL that names no bucket.")
    if objects.scheme == "file" and (objects.netloc or not objects.path.startswith("/")):
        raise SettingsError("SPOOL_OBJECTS has to name an absolute folder: file:///folder.")
    if (settings.s3_access_key_id is None) != (settings.s3_secret_access_key is None):
        raise SettingsError("Set both or none of SPOOL_S3_ACCESS_KEY_ID and SPOOL_S3_SECRET_ACCESS_KEY.")
    shared = objects.scheme == "s3" and settings.redis_url.partition(":")[0] != "redis+socket"
    if dialect == "sqlite" and shared and not is_loopback(urlsplit(settings.redis_url).hostname or ""):
        raise SettingsError(
            "SPOOL_REDIS_URL and SPOOL_OBJECTS are shared between machines, but SPOOL_DATABASE_URL is "
            "an SQLite file that only this one can see; use PostgreSQL."
        )


def _check_api(settings: Settings) -> None:
    if settings.api_token is not None and len(settings.api_token.get_secret_value()) < 16:
        raise SettingsError("SPOOL_API_TOKEN is too short to be safe: use at least 16 characters.")


def _check_worker(settings: Settings) -> None:
    if not settings.models:
        raise SettingsError("SPOOL_MODELS names no model.")
    unknown = sorted(set(settings.pinned_models) - set(settings.models))
    if unknown:
        raise SettingsError(f"SPOOL_PINNED_MODELS names {', '.join(unknown)}, not among SPOOL_MODELS.")
    if settings.lease_seconds <= 2 * settings.heartbeat_seconds:
        raise SettingsError(
            "SPOOL_LEASE_SECONDS has to be more than twice SPOOL_HEARTBEAT_SECONDS, or one late "
            "heartbeat loses a job."
        )
    if settings.frame_budget is not None and settings.frame_budget < LONGEST_CHUNK_FRAMES:
        raise SettingsError(
            f"SPOOL_FRAME_BUDGET {settings.frame_budget} is less than the {LONGEST_CHUNK_FRAMES} frames of "
            "one long chunk, which could then never run."
        )


def _check_money(settings: Settings) -> None:
    rates = [price for rate in settings.rate_card.values() for price in prices_in(rate)]
    for price in (settings.price_per_hour, *rates):
        price_micros(price)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


ELSEWHERE = {"URL", "KERNELS", "KERNEL_CACHE", "KERNEL_THREADS", "FAILPOINTS", "FAILPOINTS_FIRED"}
ELSEWHERE |= {"CONNECTION_SECRET", "APP", "CAFFEINATE", "INSTALL_ROOT", "READY_SECONDS"}
"""Variables that are no settings: the client command, `kernels`, `spool.failpoints` and ops/mac read them."""
ALIKE = 0.75


def unknown_variables(environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """One sentence for each variable that looks like a setting and is not one."""
    environ = os.environ if environ is None else environ
    known = {PREFIX + name.upper() for name in Settings.model_fields} | {PREFIX + name for name in ELSEWHERE}
    known |= {f"{PREFIX}{name.upper()}_FILE" for name in SECRETS}
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or name.upper() in known:
            continue
        near = difflib.get_close_matches(name.upper(), sorted(known), n=1, cutoff=ALIKE)
        hint = f"did you mean {near[0]}?" if near else "nothing reads it."
        yield f"{name} is not a Spool setting; {hint}"
