"""The route of a job's boosted phrases, which its row names by their digest alone."""

from pydantic import BaseModel, Field

from api.auth import CallerDep
from api.caller import own_job
from api.described import Words, answer, problems
from api.services import ServicesDep
from spool.retention import Content
from spool.store.deletions import refuse_deleted
from spool.store.phrases import phrases_of
from spool.wire import examples
from spool.wire.jobs import with_example


class PhrasesOut(BaseModel):
    """The words and phrases that a job favours; none where it asked for none."""

    model_config = with_example(examples.PHRASES)

    phrases: list[str] = Field(description="In the order of their letters, each once.")


PHRASES: Words = {
    "summary": "Fetch a job's phrases",
    "responses": {
        **answer(200, "Its boosted phrases.", PhrasesOut, examples.PHRASES),
        **problems("not_found", "deleted"),
    },
}


def phrases(services: ServicesDep, caller: CallerDep, job_id: str) -> PhrasesOut:
    """The boosted phrases of a job, which lists of jobs show by count and digest."""
    with services.database.read() as tx:
        job = own_job(tx, caller, job_id)
        refuse_deleted(job, Content.TRANSCRIPT)
        boost = job.options.boost
        return PhrasesOut(phrases=[] if boost is None else list(phrases_of(tx, boost.sha256)))
