"""How fast workers have been, from the ledger: audio and engine time of chunks that were kept. Sums only."""

from sqlalchemy import Connection, func, select

from spool.costs import NANOS_PER_SECOND, SAMPLE_RATE
from spool.planning.fleet import Measured
from spool.tables import cost_lines, jobs, workers


def measured_paces(tx: Connection) -> list[Measured]:
    """By chip, model and search, most audio first. Jobs that are forgotten count as greedy."""
    decoder, beam = jobs.c.options["decoder"].as_string(), jobs.c.options["beam"].as_integer()
    samples, engine = func.sum(cost_lines.c.audio_samples), func.sum(cost_lines.c.engine_ns)
    rows = tx.execute(
        select(workers.c.chip, cost_lines.c.model, decoder, beam, samples, engine)
        .join(workers, workers.c.id == cost_lines.c.worker_id)
        .join(jobs, jobs.c.id == cost_lines.c.job_id, isouter=True)
        .where(~cost_lines.c.wasted, cost_lines.c.engine_ns > 0)
        .group_by(workers.c.chip, cost_lines.c.model, decoder, beam)
        .order_by(samples.desc())
    )
    return [
        Measured(
            chip,
            model,
            int(heard) / SAMPLE_RATE,
            int(busy) / NANOS_PER_SECOND,
            "beam" if search == "beam" else "greedy",
            int(kept or 4),
        )
        for chip, model, search, kept, heard, busy in rows
    ]
