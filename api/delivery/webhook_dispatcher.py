"""Sends webhooks: one thread with an event loop, in which many deliveries run concurrently.

Each endpoint has few slots, and failing ones have one each, within a separate half, so that a slow or dead
receiver delays nobody else. A process leases its deliveries; another one sends what it does not finish. The
retry schedule is in `spool.domain.webhooks`.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import httpx
import structlog
from standardwebhooks import Webhook as Signer

from spool import __version__, clock
from spool.domain.webhooks import wait_after
from spool.errors import NotFound, SpoolError
from spool.net.address_policy import HostRefused
from spool.net.pinned_http import PinnedTransport
from spool.settings import Settings
from spool.settings.secret_key import SecretBox, SecretUnreadable
from spool.store import Database
from spool.store.webhook_deliveries import Taken, due_webhooks, note_try, prune_deliveries, take_deliveries
from spool.store.webhooks import disable_webhook, get_webhook, reencrypt_secrets

log = structlog.get_logger(__name__)

SLOTS, SLOTS_EACH = 512, 4
"""Deliveries in flight in one process, and to one endpoint: a failing endpoint has one slot, and so has each
when slots become scarce."""
ANSWER_S = 20.0
_CONNECT_S = 5.0
# Names resolved at once: slow ones must not delay the others.
_RESOLVERS = 32
_LEASE_S = 90.0
_LOOK_S = 1.0
_PRUNE_S = 900.0
_GONE = 410


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one attempt: a status, or why there is none."""

    status: int | None
    error: str | None
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the receiver accepted it."""
        return self.status is not None and 200 <= self.status < 300


class WebhookDispatcher(clock.Thread):
    """Sends due deliveries until stopped; call `wake()` after a commit to send at once."""

    def __init__(self, database: Database, settings: Settings, box: SecretBox) -> None:
        super().__init__(name="spool-webhooks", daemon=True)
        self._database = database
        self._settings = settings
        self._box = box
        self._reencrypted = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._stopping = False
        self._busy: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._prune_at = 0.0
        self._queries = ThreadPoolExecutor(4, thread_name_prefix="spool-webhook-query")

    def wake(self) -> None:
        """Look for due deliveries at once."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    def stop(self, timeout: float = 30.0) -> None:
        """Stop soon; another process sends what is in flight once its lease ends."""
        self._stopping = True
        self.wake()
        if self.is_alive():
            self.join(timeout)
        self._queries.shutdown(wait=True)

    def run(self) -> None:
        """Send until stopped."""
        asyncio.run(self._send_all())

    async def _send_all(self) -> None:
        self._loop = asyncio.get_running_loop()
        timeout = httpx.Timeout(ANSWER_S, connect=_CONNECT_S)
        transport = PinnedTransport(self._settings.webhook_addresses, plain_http=True, resolvers=_RESOLVERS)
        async with httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False) as client:
            while not self._stopping:
                self._woken.clear()
                pause = _LOOK_S
                try:
                    busy = Counter(self._busy)
                    for taken in await self._loop.run_in_executor(self._queries, self._take, busy):
                        self._begin(client, taken)
                except Exception as error:  # noqa: BLE001 - every webhook depends on this loop
                    log.warning("due webhooks cannot be read", error=_describe(error))
                    pause = 5 * _LOOK_S * random.uniform(0.5, 1)  # noqa: S311 - spreads load
                try:
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                except TimeoutError:
                    continue
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(self, busy: Counter[str]) -> list[Taken]:
        """Lease due deliveries for the free slots, shared fairly between endpoints."""
        if not self._reencrypted:
            with self._database.begin() as tx:
                reencrypt_secrets(tx, self._box)
            self._reencrypted = True
        if clock.monotonic() >= self._prune_at:
            self._prune_at = clock.monotonic() + _PRUNE_S
            self._prune()
        with self._database.read() as tx:
            due = due_webhooks(tx)
        random.shuffle(due)
        taken: list[Taken] = []
        # Two halves: however many receivers are dead, the others have slots.
        room = dict.fromkeys((True, False), SLOTS // 2)
        for endpoint in due:
            room[endpoint.failing] -= busy[endpoint.webhook_id]
        for endpoint in due:
            is_scarce = room[endpoint.failing] < SLOTS // 4
            free = (1 if endpoint.failing or is_scarce else SLOTS_EACH) - busy[endpoint.webhook_id]
            if (slots := min(free, room[endpoint.failing])) <= 0:
                continue
            with self._database.begin() as tx:
                leased = take_deliveries(tx, endpoint.webhook_id, slots, _LEASE_S)
            room[endpoint.failing] -= len(leased)
            taken += leased
        return taken

    def _begin(self, client: httpx.AsyncClient, taken: Taken) -> None:
        self._busy[taken.delivery.webhook_id] += 1
        task = asyncio.get_running_loop().create_task(self._deliver(client, taken))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, client: httpx.AsyncClient, taken: Taken) -> None:
        webhook_id = taken.delivery.webhook_id
        began = time.perf_counter()
        try:
            answer = await _post(client, taken, self._box)
        except Exception as error:  # noqa: BLE001 - whatever is raised, the attempt counts as failed
            log.warning("a webhook could not be sent", webhook=webhook_id, error=_describe(error))
            answer = Answer(None, f"cannot be sent ({type(error).__name__})")
        milliseconds = round((time.perf_counter() - began) * 1000)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._queries, self._note, taken, answer, milliseconds)
        except Exception as error:  # noqa: BLE001 - due again after its lease: at least once is better than never
            log.warning(
                "the result of a webhook could not be recorded", webhook=webhook_id, error=_describe(error)
            )
        finally:
            self._busy[webhook_id] -= 1
            if not self._busy[webhook_id]:
                del self._busy[webhook_id]
            self._woken.set()

    def _note(self, taken: Taken, answer: Answer, milliseconds: int) -> None:
        tried = taken.delivery
        now = clock.now()
        gone = answer.status == _GONE
        wait = None if answer.ok or gone else wait_after(tried.failures + 1, answer.retry_after)
        entry: Mapping[str, object] = {
            "at": now.isoformat(),
            "milliseconds": milliseconds,
            "status": answer.status,
            "error": answer.error,
        }
        with self._database.begin() as tx:
            if not note_try(tx, tried, entry, wait, ok=answer.ok) or answer.ok:
                return
            try:
                webhook = get_webhook(tx, tried.webhook_id)
            except NotFound:
                return
            result = answer.error or f"status {answer.status}"
            if gone:
                disable_webhook(tx, webhook.id, "The receiver answered 410 (Gone).")
            elif webhook.failing_since and now - webhook.failing_since > self._disable_after:
                since = f"{webhook.failing_since:%Y-%m-%d %H:%M} UTC"
                reason = f"Every delivery has failed since {since}; last: {result}."
                disable_webhook(tx, webhook.id, reason)
        log.info(
            "a webhook failed",
            webhook=tried.webhook_id,
            delivery=tried.id,
            reason=result,
            again_in_seconds=wait,
        )

    @property
    def _disable_after(self) -> timedelta:
        return timedelta(days=self._settings.webhook_disable_days)

    def _prune(self) -> None:
        gone = 1
        while gone and not self._stopping:
            with self._database.begin() as tx:
                gone = prune_deliveries(tx, self._settings.event_days)


async def _post(client: httpx.AsyncClient, taken: Taken, box: SecretBox) -> Answer:
    """Send it once, signed with the current time. Only the status of the answer is read."""
    try:
        keys = [box.decrypt(secret) for secret in taken.secrets]
    except SecretUnreadable as unreadable:
        return Answer(None, unreadable.message)
    message, body, now = taken.delivery.id, taken.delivery.body, clock.now()
    headers = {
        "content-type": "application/json",
        "user-agent": f"Spool/{__version__}",
        "webhook-id": message,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(Signer(key).sign(message, now, body) for key in keys),
    }
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            client.stream("POST", taken.url, content=body.encode(), headers=headers) as response,
        ):
            retry_after = response.headers.get("retry-after", "")
            error = None
            if response.is_redirect:
                error = "redirects are not followed"
            return Answer(
                response.status_code, error, float(retry_after) if retry_after.isdecimal() else None
            )
    except HostRefused as error:
        return Answer(None, str(error))
    except (TimeoutError, httpx.TimeoutException):
        return Answer(None, f"no answer within {ANSWER_S:g} s")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Answer(None, f"cannot be reached ({type(error).__name__})")


def _describe(error: Exception) -> str:
    return error.message if isinstance(error, SpoolError) else repr(error)
