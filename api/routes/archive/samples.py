"""The routes of samples: how many passages to listen to, and the error rate that they show."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Connection

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_batch
from api.openapi.jobs import Cursor, answer, describe, json_body, problems
from api.services import ServicesDep
from api.submission.bodies import SMALL, read_json
from spool.domain.archive.sampling import Estimate
from spool.errors import NotFound
from spool.schemas.common import Project
from spool.schemas.examples import review as examples
from spool.schemas.review import EstimateOut, Margin, SampleOut, SamplePage, SampleRequest, SizeOut
from spool.store.transcripts import samples as store

SIZE = describe(
    "Say how many passages to listen to",
    answer(200, "The size of a sample.", SizeOut, examples.SIZE),
    problems("not_found", "forbidden"),
)

DRAW = describe(
    "Draw a sample of passages",
    answer(201, "The sample.", SampleOut, examples.SAMPLE),
    problems("malformed", "forbidden", "not_found", "conflict", "too_large", "invalid_request"),
    status_code=201,
    openapi_extra=json_body(SampleRequest, examples.SAMPLE_REQUEST),
)

LIST = describe(
    "List samples and their error rates",
    answer(200, "A page of samples, newest first.", SamplePage, examples.SAMPLE_PAGE),
)

ONE = describe(
    "Estimate the error rate from a sample",
    answer(200, "The sample, with the rate and its 95 % interval.", SampleOut, examples.SAMPLE),
    problems("not_found"),
)


def get_size(
    services: ServicesDep,
    caller: CallerDep,
    project: Project | None = None,
    batch: Annotated[str | None, Query(max_length=64, description="Only from jobs of this batch.")] = None,
    model: Annotated[str | None, Query(max_length=200, description="Only from jobs of this model.")] = None,
    margin: Annotated[Margin, Query()] = 0.02,
) -> SizeOut:
    """How many passages are needed to know the word error rate within ± `margin` with 95 % confidence."""
    with services.database.read() as tx:
        needed = store.size_for(tx, _scope(tx, caller, project, batch, model), margin)
    return SizeOut(population=needed.population, words=needed.words, passages=needed.passages)


async def draw(request: Request, services: ServicesDep, caller: CallerDep) -> SampleOut:
    """Draw passages at random and store the selection. `GET /v1/review?sample=…` lists them: listen to each,
    and correct or check it; the sample then has the error rate."""
    body = await read_json(request, SampleRequest, SMALL)

    def work() -> store.Result:
        with services.database.begin() as tx:
            scope = _scope(tx, caller, body.project, body.batch, body.model)
            author = body.author or caller.name
            sample = store.draw_sample(tx, scope, body.margin, author, body.passages, body.seed)
            return store.result_of(tx, sample)

    return _present(await run_in_threadpool(work))


def list_samples(
    services: ServicesDep,
    caller: CallerDep,
    project: Project | None = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> SamplePage:
    """All samples, newest first, each with its error rate."""
    if project is not None and not caller.sees(project):
        return SamplePage(items=[], next_cursor=None)
    with services.database.read() as tx:
        page = store.list_samples(tx, caller.project or project, cursor, limit)
        items = [_present(store.result_of(tx, sample)) for sample in page.items]
    return SamplePage(items=items, next_cursor=page.next_cursor)


def get_sample(services: ServicesDep, caller: CallerDep, sample_id: str) -> SampleOut:
    """The word error rate of what the sample was drawn from, in all and by model."""
    with services.database.read() as tx:
        sample = store.get_sample(tx, sample_id)
        if not caller.sees(sample.scope.project):
            raise NotFound(f"There is no sample {sample_id}.")
        return _present(store.result_of(tx, sample))


def _scope(
    tx: Connection, caller: Principal, project: str | None, batch: str | None, model: str | None
) -> store.Scope:
    if batch is not None:
        owner = get_visible_batch(tx, caller, batch).project
        project = owner if project is None else project
    return store.Scope(caller.project_for(project), batch, model)


def _present(result: store.Result) -> SampleOut:
    sample = result.sample
    return SampleOut(
        id=sample.id,
        project=sample.scope.project,
        batch=sample.scope.batch,
        model=sample.scope.model,
        population=sample.population,
        margin=sample.margin,
        seed=sample.seed,
        size=sample.size,
        gone=result.gone,
        created_at=sample.created_at,
        created_by=sample.created_by,
        estimate=_estimate(result.total),
        by_model={name: _estimate(each) for name, each in result.by_model.items()},
    )


def _estimate(values: Estimate) -> EstimateOut:
    return EstimateOut(
        **{
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in asdict(values).items()
        }
    )
