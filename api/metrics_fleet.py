"""What each worker tells of itself with its signs of life, as metrics.

Counters are sums over all processes that ever bore the worker's name in its pool, so they never fall; what a
process did between its last sign of life and its death is not in them. Reads no database.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.metrics_core import CounterMetricFamily as Total
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from spool.costs import NANOS_PER_SECOND, SAMPLE_RATE
from spool.store.gauges import Gauges
from spool.store.watching import Member
from spool.work_counts import SIZE_BOUNDS

_LABELS = ("worker", "pool")


def fleet_metrics(gauges: Gauges) -> Iterator[Metric]:
    """The metrics of every worker that works or is missed."""
    up = Gauge("spool_worker_up", "1 while the worker is heard of; by its state.", labels=[*_LABELS, "state"])
    seen = Gauge("spool_worker_last_seen_seconds", "Since the last sign of life.", labels=_LABELS)
    price = Gauge("spool_worker_price_per_hour", "What an engine hour of it costs.", labels=_LABELS)
    for member in gauges.fleet:
        worker, name = member.worker, [member.worker.info.name, member.worker.info.pool]
        up.add_metric([*name, worker.state if worker.alive else "lost"], int(worker.alive))
        seen.add_metric(name, max((gauges.now - worker.seen_at).total_seconds(), 0))
        price.add_metric(name, worker.info.price_per_hour_micros / 1e6)
    yield from (up, seen, price, _batch_sizes(gauges))
    for title, words, more, values in _TOTALS:
        total = Total(title, words, labels=[*_LABELS, *more])
        for member in gauges.fleet:
            for labels, value in values(member).items():
                total.add_metric([member.worker.info.name, member.worker.info.pool, *labels], value)
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
        name = [member.worker.info.name, member.worker.info.pool]
        sizes.add_metric(name, buckets, member.counts.utterances)
    return sizes


_Values = Mapping[tuple[str, ...], float]


def _attempts(member: Member) -> _Values:
    return {tuple(key.split("/", 1)): number for key, number in sorted(member.counts.attempts.items())}


def _overhead(member: Member) -> _Values:
    counts = member.counts
    return {("loading",): counts.load_ns / NANOS_PER_SECOND, ("lost",): counts.lost_ns / NANOS_PER_SECOND}


_TOTALS: tuple[tuple[str, str, tuple[str, ...], Callable[[Member], _Values]], ...] = (
    (
        "spool_worker_engine_busy_seconds",
        "Engine time of batches that answered.",
        (),
        lambda member: {(): member.engine_busy_ns / NANOS_PER_SECOND},
    ),
    (
        "spool_worker_engine_idle_seconds",
        "Time in which the engine had nothing on the device.",
        (),
        lambda member: {(): member.counts.idle_ns / NANOS_PER_SECOND},
    ),
    (
        "spool_worker_engine_overhead_seconds",
        "Engine time on nobody's bill: loading models, batches that raised or died.",
        ("kind",),
        _overhead,
    ),
    (
        "spool_worker_engine_restarts",
        "Times that the engine's process ended and was started anew.",
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
        "Audio that the engine was given, overlaps of chunks included.",
        (),
        lambda member: {(): member.counts.utterance_samples / SAMPLE_RATE},
    ),
    (
        "spool_worker_padding_seconds",
        "Padding that it computed beside that.",
        (),
        lambda member: {(): member.counts.padding_samples / SAMPLE_RATE},
    ),
    (
        "spool_worker_attempts",
        "Attempts at jobs by how they ended, and by error.",
        ("outcome", "error"),
        _attempts,
    ),
)
