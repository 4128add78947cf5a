"""The route of metrics, for Prometheus: what waits, runs and failed, what the fleet does, what it costs.

Everything is read from the database when it is asked for, and kept for `KEPT_SECONDS`, so that several API
processes say the same and several scrapers cost no more than one. Names end in their unit, what only grows in
`_total`; sums since the start of a day or month are gauges, since they start again. What workers tell of
themselves is in `metrics_fleet`; docs/operations.md has the table.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal

from fastapi import Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily as Total
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import InfoMetricFamily, Metric

from api.metrics_fleet import fleet_metrics
from api.services import ServicesDep
from spool import __version__
from spool.costs import NANOS_PER_UNIT
from spool.settings import Settings
from spool.store.gauges import Gauges, Spent, read_gauges

KEPT_SECONDS = 5.0
SHARE = 0.05
"""Of the time, that reading may take: with many millions of rows it is kept for longer."""


class Metrics:
    """The last reading, and when it was taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = b""
        self._good_until = float("-inf")

    def text(self, services: ServicesDep) -> bytes:
        """Prometheus' text form, at most `KEPT_SECONDS` old, or older where reading takes long. Raises
        StorageError."""
        with self._lock:
            began = time.monotonic()
            if began > self._good_until:
                with services.database.read() as tx:
                    gauges = read_gauges(tx)
                registry = CollectorRegistry()
                registry.register(_Reading(gauges, services.settings))
                self._text = generate_latest(registry)
                now = time.monotonic()
                self._good_until = now + max(KEPT_SECONDS, (now - began) / SHARE)
            return self._text


def metrics(request: Request, services: ServicesDep) -> Response:
    """Everything a monitor watches, in Prometheus' text form."""
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
        yield from _of_jobs(self._gauges)
        yield from fleet_metrics(self._gauges)
        yield from _of_laws(self._gauges)
        yield from _of_webhooks(self._gauges.webhooks)
        for period, spent in (("today", self._gauges.today), ("month", self._gauges.month)):
            yield from _of_money(period, spent)
        yield from _of_budgets(self._budgets, self._gauges.month_by_project)


def _of_jobs(gauges: Gauges) -> Iterator[Metric]:
    labels = ["pool", "priority"]
    queued = Gauge("spool_jobs_queued", "Jobs that wait for a worker.", labels=labels)
    age = Gauge(
        "spool_oldest_queued_seconds", "How long the job that waits longest has waited.", labels=labels
    )
    for waiting in gauges.waiting:
        queued.add_metric([waiting.pool, waiting.priority], waiting.jobs)
        age.add_metric(
            [waiting.pool, waiting.priority], max((gauges.now - waiting.oldest).total_seconds(), 0)
        )
    running = Gauge("spool_jobs_running", "Jobs in workers.", labels=["pool"])
    for pool, number in gauges.running.items():
        running.add_metric([pool], number)
    ended = Gauge("spool_jobs_ended", "Jobs by final state; failed ones by error.", labels=["state", "error"])
    for one in gauges.ended:
        ended.add_metric([one.state.value, one.error], one.jobs)
    yield from (queued, age, running, ended)
    yield Gauge("spool_batches_receiving", "Batches whose lines are still coming in.", gauges.open_batches)
    yield Gauge("spool_messages_unsent", "Messages that have still to go to the broker.", gauges.unsent)


def _of_laws(gauges: Gauges) -> Iterator[Metric]:
    lost = Total("spool_leases_lost", "Leases that ran out: jobs taken back from a worker.", labels=["pool"])
    for pool, number in gauges.leases_lost.items():
        lost.add_metric([pool], number)
    yield lost
    breaches = Gauge("spool_audit_breaches", "Breaches that the last `spool audit` found.", labels=["rule"])
    age = Gauge("spool_audit_age_seconds", "Since the last `spool audit`; nothing where there was none.")
    if gauges.audited is not None and gauges.audited.ended_at is not None:
        for rule, number in gauges.audited.breaches.items():
            breaches.add_metric([rule], number)
        age.add_metric([], max((gauges.now - gauges.audited.ended_at).total_seconds(), 0))
    yield from (breaches, age)


def _of_webhooks(counts: Mapping[str, int]) -> Iterator[Metric]:
    sent = Total("spool_webhook_deliveries", "Webhook deliveries by what came of them.", labels=["outcome"])
    for outcome in ("delivered", "failed_tries", "given_up"):
        sent.add_metric([outcome], counts.get(outcome, 0))
    yield sent
    pending = counts.get("pending", 0)
    yield Gauge("spool_webhook_deliveries_pending", "Webhook deliveries that are still to be made.", pending)
    disabled = counts.get("disabled_endpoints", 0)
    yield Gauge("spool_webhook_endpoints_disabled", "Endpoints given up after days of failures.", disabled)


def _of_money(period: str, spent: tuple[Spent, ...]) -> Iterator[Metric]:
    labels = ["model", "pool"]
    of = f"of this UTC {'day' if period == 'today' else 'month'}"
    columns = {
        f"spool_audio_{period}_seconds": (
            f"Audio transcribed and billed {of}.",
            [s.audio_seconds for s in spent],
        ),
        f"spool_engine_{period}_seconds": (f"Billable engine time {of}.", [s.engine_seconds for s in spent]),
        f"spool_wasted_{period}_seconds": (
            f"Engine time of lost attempts {of}.",
            [s.wasted_seconds for s in spent],
        ),
        f"spool_billable_{period}": (
            f"Billable cost {of}.",
            [s.billable_nanos / NANOS_PER_UNIT for s in spent],
        ),
        f"spool_wasted_{period}": (
            f"Cost of lost attempts {of}.",
            [s.wasted_nanos / NANOS_PER_UNIT for s in spent],
        ),
    }
    for name, (words, values) in columns.items():
        family = Gauge(name, words, labels=labels)
        for one, value in zip(spent, values, strict=True):
            family.add_metric([one.model, one.pool], value)
        yield family


def _of_budgets(budgets: Mapping[str, Decimal], spent: Mapping[str, int]) -> Iterator[Metric]:
    share = Gauge("spool_budget_share", "Spent of a project's budget this UTC month.", labels=["project"])
    for project, budget in sorted(budgets.items()):
        if budget:
            share.add_metric([project], spent.get(project, 0) / NANOS_PER_UNIT / float(budget))
    yield share
