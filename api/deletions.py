"""The route that deletes what a job holds: its uploaded recording, its words, or both.

The job itself stays, with its costs and what was deleted when.
"""

from typing import Annotated, Literal

from fastapi import Query, Response

from api.auth import CallerDep
from api.caller import own_job, own_job_with_cost
from api.described import Words, answer, problems
from api.services import ServicesDep
from api.shown import shown_detail
from spool.deleting import delete_content
from spool.errors import Conflict
from spool.retention import Content
from spool.wire import examples
from spool.wire.jobs import JobDetail

DELETE: Words = {
    "summary": "Delete a job's recording or words",
    "responses": {
        **answer(200, "It is gone; the job stays.", JobDetail, examples.JOB_DELETED),
        **answer(
            202, "It is out of reach; the object store lets go of it later.", JobDetail, examples.JOB_DELETED
        ),
        **problems("not_found", "not_ended"),
    },
}


def delete(
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    what: Annotated[
        Literal["all", "source", "transcript"],
        Query(description="The uploaded recording, every word in every form and the phrases, or both."),
    ] = "all",
) -> JobDetail:
    """Delete for good what a job that has ended holds. What was deleted before is no error."""
    with services.database.read() as tx:
        job = own_job(tx, caller, job_id)
    if not job.state.terminal:
        raise Conflict(f"Job {job.id} is {job.state}; cancel it first.")
    if what == "source" and job.source.kind != "upload":
        raise Conflict(f"The recording of job {job.id} is not kept here.")
    wanted = list(Content) if what == "all" else [Content(what)]
    complete = delete_content(services.database, services.objects, [job.id], wanted, caller.name)
    with services.database.read() as tx:
        now, cost = own_job_with_cost(tx, caller, job_id)
    shown = shown_detail(now, cost, services.settings.currency)
    if shown.deleted is None:
        raise Conflict(f"Job {job.id} is {now.state} again.")
    response.status_code = 200 if complete else 202
    return shown
