"""The route of metrics, for Prometheus: what is queued, running and failed, the state of the fleet, and cost.

All values are read from the database on request and cached for `KEPT_SECONDS`, so that several API processes
report the same numbers and several scrapers cost no more than one. Names end in their unit, counters in
`_total`; sums since the start of a day or month are gauges, because they reset. docs/operations.md has the
table.

Workers report their own metrics with their heartbeats. Their counters are sums over all processes that had
the worker's name in its pool, so they never decrease; what a process did between its last heartbeat and its
death is not included.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal

from fastapi import Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily as Total
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import HistogramMetricFamily, InfoMetricFamily, Metric

from api.services import ServicesDep
from spool import __version__, clock
from spool.domain.pricing import NANOS_PER_SECOND, NANOS_PER_UNIT, SAMPLE_RATE
from spool.domain.worker_stats import SIZE_BOUNDS
from spool.errors import job_codes, retryable_codes
from spool.settings import Settings
from spool.store.monitoring import Gauges, Member, Spent, read_gauges
from spool.store.queue.crashes import POISON_CODE

KEPT_SECONDS = 5.0
SHARE = 0.05
"""The share of time that may be spent reading: with many millions of rows a reading is cached for longer."""


class Metrics:
    """The last reading, and when it was taken."""

    def __init__(self) -> None:
        self._lock = clock.Lock()
        self._text = b""
        self._good_until = float("-inf")

    def text(self, services: ServicesDep) -> bytes:
        """Prometheus' text format, at most `KEPT_SECONDS` old, or older if reading takes long. Raises
        StorageError."""
        with self._lock:
            began = clock.monotonic()
            if began > self._good_until:
                with services.database.read() as tx:
                    gauges = read_gauges(tx)
                registry = CollectorRegistry()
                registry.register(_Reading(gauges, services.settings))
                self._text = generate_latest(registry)
                now = clock.monotonic()
                self._good_until = now + max(KEPT_SECONDS, (now - began) / SHARE)
            return self._text


def get_metrics(request: Request, services: ServicesDep) -> Response:
    """Read the metrics.

    All metrics in Prometheus' text format.
    """
    kept: Metrics = request.app.state.metrics
    return Response(kept.text(services), media_type=CONTENT_TYPE_LATEST)


class _Reading:
    """One reading of the gauges as Prometheus collects it."""

    def __init__(self, gauges: Gauges, settings: Settings) -> None:
        self._gauges = gauges
        self._currency = settings.currency
        self._budgets = settings.budgets

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily(
            "spool", "This server.", value={"version": __version__, "currency": self._currency}
        )
        yield from _job_metrics(self._gauges)
        yield from fleet_metrics(self._gauges)
        yield from _audit_metrics(self._gauges)
        yield from _webhook_metrics(self._gauges.webhooks)
        yield from _archive_metrics(self._gauges)
        for period, spent in (("today", self._gauges.today), ("month", self._gauges.month)):
            yield from _cost_metrics(period, spent)
        yield from _budget_metrics(self._budgets, self._gauges.month_by_project)


def _job_metrics(gauges: Gauges) -> Iterator[Metric]:
    labels = ["pool", "priority"]
    queued = Gauge("spool_jobs_queued", "Jobs that wait for a worker.", labels=labels)
    age = Gauge("spool_oldest_queued_seconds", "How long the longest-waiting job has waited.", labels=labels)
    for waiting in gauges.waiting:
        queued.add_metric([waiting.pool, waiting.priority], waiting.jobs)
        age.add_metric(
            [waiting.pool, waiting.priority], max((gauges.now - waiting.oldest).total_seconds(), 0)
        )
    unserved = Gauge("spool_jobs_unserved", "Jobs that no worker can take now.", labels=["queue", "model"])
    for each in gauges.unserved:
        unserved.add_metric([each.queue, each.model], each.jobs)
    running = Gauge("spool_jobs_running", "Jobs that workers are running.", labels=["pool"])
    for pool, number in gauges.running.items():
        running.add_metric([pool], number)
    refused = Gauge(
        "spool_jobs_refused",
        "Queued jobs that a worker returned because it cannot run them.",
        labels=["pool"],
    )
    for pool, number in gauges.refused.items():
        refused.add_metric([pool], number)
    ended = Gauge("spool_jobs_ended", "Jobs by final state; failed ones by error.", labels=["state", "error"])
    by_error = {("failed", code): 0 for code in (*job_codes(), POISON_CODE)}
    by_error |= {(one.state.value, one.error): one.jobs for one in gauges.ended}
    for (state, error), number in sorted(by_error.items()):
        ended.add_metric([state, error], number)
    yield from (queued, age, unserved, running, refused, ended)
    yield Gauge("spool_batches_receiving", "Batches whose lines are still being read.", gauges.open_batches)
    yield Gauge("spool_messages_unsent", "Messages not yet sent to the broker.", gauges.unsent)


def _audit_metrics(gauges: Gauges) -> Iterator[Metric]:
    lost = Total("spool_leases_lost", "Leases that ran out: jobs taken back from a worker.", labels=["pool"])
    pools = {member.worker.pool for member in gauges.fleet} | {*gauges.running, *gauges.leases_lost}
    for pool in sorted(pools):
        lost.add_metric([pool], gauges.leases_lost.get(pool, 0))
    yield lost
    breaches = Gauge("spool_audit_breaches", "Violations found by the last `spool audit`.", labels=["rule"])
    age = Gauge("spool_audit_age_seconds", "Time since the last `spool audit`; absent if there was none.")
    if gauges.audited is not None and gauges.audited.ended_at is not None:
        for rule, number in gauges.audited.breaches.items():
            breaches.add_metric([rule], number)
        age.add_metric([], max((gauges.now - gauges.audited.ended_at).total_seconds(), 0))
    yield from (breaches, age)


def _webhook_metrics(counts: Mapping[str, int]) -> Iterator[Metric]:
    sent = Total("spool_webhook_deliveries", "Webhook deliveries by outcome.", labels=["outcome"])
    for outcome in ("delivered", "failed_tries", "given_up"):
        sent.add_metric([outcome], counts.get(outcome, 0))
    yield sent
    pending = counts.get("pending", 0)
    yield Gauge("spool_webhook_deliveries_pending", "Webhook deliveries still pending.", pending)
    disabled = counts.get("disabled_endpoints", 0)
    yield Gauge("spool_webhook_endpoints_disabled", "Endpoints disabled after days of failures.", disabled)


def _archive_metrics(gauges: Gauges) -> Iterator[Metric]:
    watched = Gauge("spool_sources", "Watched folders and buckets by state.", labels=["state"])
    files = Gauge("spool_source_files", "Versions of files in them, by outcome.", labels=["state"])
    late = Gauge("spool_source_overdue_seconds", "How long the most overdue listing has been due.")
    if gauges.sources is not None:
        for state in ("watching", "failing", "paused"):
            watched.add_metric([state], gauges.sources.sources.get(state, 0))
        for state in ("settling", "taken", "skipped", "refused"):
            files.add_metric([state], gauges.sources.files.get(state, 0))
        late.add_metric([], _since(gauges, gauges.sources.due))
    states, due = gauges.outputs
    outputs = Gauge("spool_output_files", "Transcript files to export, by state.", labels=["state"])
    for state in ("pending", "written", "failed", "replaced"):
        outputs.add_metric([state], states.get(state, 0))
    yield from (watched, files, late, outputs)
    yield Gauge(
        "spool_output_overdue_seconds", "How long the most overdue file has been due.", _since(gauges, due)
    )


def _since(gauges: Gauges, moment: datetime | None) -> float:
    return 0.0 if moment is None else max((gauges.now - moment).total_seconds(), 0.0)


def _cost_metrics(period: str, spent: tuple[Spent, ...]) -> Iterator[Metric]:
    of = f"of this UTC {'day' if period == 'today' else 'month'}"
    for name, words, amount in _AMOUNTS:
        family = Gauge(name.format(period), f"{words} {of}.", labels=["model", "pool"])
        for one in spent:
            family.add_metric([one.model, one.pool], amount(one))
        yield family


_AMOUNTS: tuple[tuple[str, str, Callable[[Spent], float]], ...] = (
    ("spool_audio_{}_seconds", "Audio transcribed and billed", lambda one: one.audio_seconds),
    ("spool_engine_{}_seconds", "Billable engine time", lambda one: one.engine_seconds),
    ("spool_wasted_{}_seconds", "Engine time of lost attempts", lambda one: one.wasted_seconds),
    ("spool_billable_{}", "Billable cost", lambda one: one.billable_nanos / NANOS_PER_UNIT),
    ("spool_wasted_{}", "Cost of lost attempts", lambda one: one.wasted_nanos / NANOS_PER_UNIT),
)


def _budget_metrics(budgets: Mapping[str, Decimal], spent: Mapping[str, int]) -> Iterator[Metric]:
    share = Gauge("spool_budget_share", "Spent of a project's budget this UTC month.", labels=["project"])
    for project, budget in sorted(budgets.items()):
        if budget:
            share.add_metric([project], spent.get(project, 0) / NANOS_PER_UNIT / float(budget))
    yield share


_LABELS = ("worker", "pool")


def fleet_metrics(gauges: Gauges) -> Iterator[Metric]:
    """The metrics of every worker that is alive or lost."""
    up = Gauge("spool_worker_up", "1 while the worker is alive; by its state.", labels=[*_LABELS, "state"])
    seen = Gauge("spool_worker_last_seen_seconds", "Time since its last heartbeat.", labels=_LABELS)
    price = Gauge("spool_worker_price_per_hour", "Its price per engine hour.", labels=_LABELS)
    for member in gauges.fleet:
        worker, name = member.worker, [member.worker.name, member.worker.pool]
        up.add_metric([*name, worker.state if worker.alive else "lost"], int(worker.alive))
        seen.add_metric(name, max((gauges.now - worker.seen_at).total_seconds(), 0))
        price.add_metric(name, worker.price_per_hour_micros / 1e6)
    yield from (up, seen, price, _batch_sizes(gauges))
    for title, words, more, values in _TOTALS:
        total = Total(title, words, labels=[*_LABELS, *more])
        for member in gauges.fleet:
            for labels, value in values(member).items():
                total.add_metric([member.worker.name, member.worker.pool, *labels], value)
        yield total


def _batch_sizes(gauges: Gauges) -> Metric:
    sizes = HistogramMetricFamily(
        "spool_worker_batch_utterances", "Utterances in a batch.", labels=list(_LABELS)
    )
    for member in gauges.fleet:
        seen, buckets = 0, []
        for bound, number in zip((*map(float, SIZE_BOUNDS), float("inf")), member.counts.sizes, strict=True):
            seen += number
            buckets.append(("+Inf" if bound == float("inf") else str(bound), seen))
        name = [member.worker.name, member.worker.pool]
        sizes.add_metric(name, buckets, member.counts.utterances)
    return sizes


_Values = Mapping[tuple[str, ...], float]


def _attempts(member: Member) -> _Values:
    known = [f"failed/{code}" for code in job_codes()] + [f"handed_back/{code}" for code in retryable_codes()]
    counts = {**dict.fromkeys(("done/", *known), 0), **member.counts.attempts}
    return {tuple(key.split("/", 1)): number for key, number in sorted(counts.items())}


def _overhead(member: Member) -> _Values:
    counts = member.counts
    return {("loading",): counts.load_ns / NANOS_PER_SECOND, ("lost",): counts.lost_ns / NANOS_PER_SECOND}


_TOTALS: tuple[tuple[str, str, tuple[str, ...], Callable[[Member], _Values]], ...] = (
    (
        "spool_worker_engine_busy_seconds",
        "Engine time of batches that succeeded.",
        (),
        lambda member: {(): member.engine_busy_ns / NANOS_PER_SECOND},
    ),
    (
        "spool_worker_engine_idle_seconds",
        "Time in which the engine left the device idle.",
        (),
        lambda member: {(): member.counts.idle_ns / NANOS_PER_SECOND},
    ),
    (
        "spool_worker_engine_overhead_seconds",
        "Engine time that is not billed: loading models, and batches that failed or crashed.",
        ("kind",),
        _overhead,
    ),
    (
        "spool_worker_engine_restarts",
        "Times the engine's process ended and was restarted.",
        (),
        lambda member: {(): member.counts.restarts},
    ),
    (
        "spool_worker_audio_seconds",
        "Audio of finished chunks, each second once.",
        (),
        lambda member: {(): member.counts.audio_samples / SAMPLE_RATE},
    ),
    (
        "spool_worker_utterance_seconds",
        "Audio given to the engine, including overlaps of chunks.",
        (),
        lambda member: {(): member.counts.utterance_samples / SAMPLE_RATE},
    ),
    (
        "spool_worker_padding_seconds",
        "Padding computed in addition.",
        (),
        lambda member: {(): member.counts.padding_samples / SAMPLE_RATE},
    ),
    (
        "spool_worker_junk_messages",
        "Dropped messages in its queues that Spool did not send.",
        (),
        lambda member: {(): member.counts.junk_messages},
    ),
    (
        "spool_worker_attempts",
        "Attempts at jobs by how they ended, and by error.",
        ("outcome", "error"),
        _attempts,
    ),
)
