"""The route of the overview: what waits, runs and ended, and what today came to; a project sees its own."""

from datetime import datetime
from decimal import Decimal
from itertools import groupby

from pydantic import BaseModel, Field

from api.auth import CallerDep
from api.services import ServicesDep
from spool.costs import NANOS_PER_UNIT
from spool.jobs import JobState
from spool.store.gauges import Gauges, Spent, read_gauges
from spool.wire import examples
from spool.wire.jobs import Money, with_example


class WaitingOut(BaseModel):
    """The queue of one pool."""

    pool: str
    jobs: int
    oldest_seconds: float = Field(description="How long the job that waits longest has waited.")


class EndedOut(BaseModel):
    """Jobs in one final state; failed ones by error."""

    state: JobState
    error: str = Field(description="The error's code; empty unless failed.")
    jobs: int


class TodayOut(BaseModel):
    """The present UTC day."""

    audio_seconds: float
    engine_seconds: float
    rtfx: float | None = Field(description="Audio seconds per engine second; null before any work.")
    billable: Money
    wasted: Money
    currency: str


class Overview(BaseModel):
    """Where everything stands, at a glance."""

    model_config = with_example(examples.OVERVIEW)

    now: datetime
    waiting: list[WaitingOut]
    running: dict[str, int] = Field(description="Jobs in workers, by pool.")
    ended: list[EndedOut]
    batches_receiving: int
    today: TodayOut


def overview(services: ServicesDep, caller: CallerDep) -> Overview:
    """Where everything stands now."""
    with services.database.read() as tx:
        gauges = read_gauges(tx, caller.project, month=False)
    return _shown(gauges, services.settings.currency)


def _shown(gauges: Gauges, currency: str) -> Overview:
    return Overview(
        now=gauges.now,
        waiting=_waiting(gauges),
        running=gauges.running,
        ended=[EndedOut(state=one.state, error=one.error, jobs=one.jobs) for one in gauges.ended],
        batches_receiving=gauges.open_batches,
        today=_today(gauges.today, currency),
    )


def _waiting(gauges: Gauges) -> list[WaitingOut]:
    shown = []
    for pool, classes in groupby(gauges.waiting, key=lambda one: one.pool):
        waiting = list(classes)
        oldest = (gauges.now - min(one.oldest for one in waiting)).total_seconds()
        shown.append(
            WaitingOut(pool=pool, jobs=sum(one.jobs for one in waiting), oldest_seconds=max(oldest, 0))
        )
    return shown


def _today(spent: tuple[Spent, ...], currency: str) -> TodayOut:
    audio, engine = sum(one.audio_seconds for one in spent), sum(one.engine_seconds for one in spent)
    return TodayOut(
        audio_seconds=audio,
        engine_seconds=engine,
        rtfx=audio / engine if engine else None,
        billable=Decimal(sum(one.billable_nanos for one in spent)) / NANOS_PER_UNIT,
        wasted=Decimal(sum(one.wasted_nanos for one in spent)) / NANOS_PER_UNIT,
        currency=currency,
    )
