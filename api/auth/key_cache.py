"""API keys from the database, cached for a few seconds.

A request with a cached key costs no query, so a key revoked elsewhere keeps working for at most
`REMEMBERED_S`. Once a key has been created, every request requires one; this is noticed within `LOOK_S`.
While the database does not answer, no request is admitted.
"""

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import structlog

from spool import clock
from spool.domain.api_keys import is_same_key
from spool.errors import SpoolError
from spool.settings import Settings
from spool.settings.validation import is_loopback
from spool.store import Database
from spool.store.api_keys import USE_NOTED_SECONDS, ApiKey, any_key, find_key, note_use

REMEMBERED_S = 5.0
LOOK_S = 2.0
_STALE_S = 10.0
_REMEMBERED = 10_000

log = structlog.get_logger(__name__)


def is_key_required(settings: Settings) -> bool:
    """Whether a key is required whatever the database contains."""
    return settings.api_token is not None or not is_loopback(settings.api_host)


class KeyCache:
    """The keys of one database. A thread watches for the first one."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._must = is_key_required(settings)
        self._noticed = False
        self._looked = float("-inf")
        self._known: OrderedDict[str, tuple[ApiKey, float]] = OrderedDict()
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._lock = clock.Lock()
        self._closing = clock.Event()
        self._watcher = clock.Thread(target=self._watch, name="spool-key-cache", daemon=True)
        self._notes = ThreadPoolExecutor(1, thread_name_prefix="spool-key-use")

    def start(self) -> None:
        """Start the thread that watches for changes of keys."""
        self._watcher.start()

    def close(self) -> None:
        """Stop watching, and write the uses noted so far."""
        self._closing.set()
        self._notes.shutdown(wait=True)
        if self._watcher.is_alive():
            self._watcher.join(10)

    @property
    def requires_key(self) -> bool:
        """Whether a key is required, as far as is known without a query."""
        return self._must or self._noticed

    @property
    def is_sure(self) -> bool:
        """Whether `requires_key` is true or was checked recently."""
        return self.requires_key or clock.monotonic() - self._looked < _STALE_S

    def check_required(self) -> bool:
        """Whether a key is required according to the database. Raises StorageError."""
        if not self.requires_key:
            began = clock.monotonic()
            with self._database.read() as tx:
                self._noticed = any_key(tx)
            self._looked = began
        return self.requires_key

    def get_cached(self, key_id: str, text: str) -> ApiKey | None:
        """The key, valid or not, if it is cached; None if the database has to be queried."""
        known = self._known.get(key_id)
        if (
            known is None
            or clock.monotonic() - known[1] > REMEMBERED_S
            or not is_same_key(text, known[0].sha256)
        ):
            return None
        return known[0]

    def has_seen(self, key_id: str, text: str) -> bool:
        """Whether this key was found before, so that its bearer is not guessing."""
        known = self._known.get(key_id)
        return known is not None and is_same_key(text, known[0].sha256)

    def find(self, key_id: str, text: str) -> ApiKey | None:
        """The key from the database, valid or not; None if there is none. Raises StorageError."""
        began = clock.monotonic()
        with self._database.read() as tx:
            key = find_key(tx, key_id)
        if key is None or not is_same_key(text, key.sha256):
            return None
        self._noticed = True
        with self._lock:
            self._known.pop(key_id, None)
            self._known[key_id] = (key, began)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return key

    def note_use(self, key_id: str) -> None:
        """Note the use of a key; written in the background, once a minute."""
        now = clock.monotonic()
        if now - self._noted.get(key_id, float("-inf")) < USE_NOTED_SECONDS:
            return
        self._noted[key_id] = now
        if len(self._noted) > _REMEMBERED:
            self._noted.popitem(last=False)
        self._notes.submit(self._write_use, key_id)

    def _write_use(self, key_id: str) -> None:
        try:
            with self._database.begin() as tx:
                note_use(tx, key_id)
        except SpoolError as error:
            log.warning("the use of a key could not be recorded", key=key_id, error=error.message)

    def _watch(self) -> None:
        while not self._closing.is_set() and not self.requires_key:
            try:
                self.check_required()
            except SpoolError as error:
                log.warning("cannot check whether there are keys", error=error.message)
            self._closing.wait(LOOK_S)
