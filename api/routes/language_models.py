"""The routes of language models: add a version, list, show, delete."""

from typing import Annotated

import structlog
from fastapi import Path, Request
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import Principal
from api.openapi.document import FORM, form
from api.queries import ListedProject
from api.services import Services, ServicesDep
from api.submission.bodies import SMALL, parse_json
from api.submission.uploads import Upload, receive_upload
from spool.domain.search.glossary import parse_reference
from spool.domain.search.language_model import HEAD_BYTES, MOST_BYTES, read_counts
from spool.errors import ObjectDamaged, StorageError
from spool.failpoints import failpoint
from spool.schemas.common import ListOf, Project
from spool.schemas.glossaries import LanguageModelOut, LanguageModelRequest
from spool.store.archive import language_models as store

Reference = Annotated[str, Path(max_length=80, description="`NAME`, or `NAME@VERSION`.")]

BODY = {FORM: form("An ARPA file.", LanguageModelRequest) | {"required": ["file", "request"]}}
log = structlog.get_logger(__name__)


async def put(request: Request, services: ServicesDep, caller: CallerDep) -> LanguageModelOut:
    """Add a version of a language model.

    An n-gram language model, from an ARPA file. If the latest version has the same file, that one is
    returned. Jobs name it: `language_model: NAME`.
    """
    limit = min(services.settings.upload_max_bytes, MOST_BYTES)
    async with receive_upload(request, services.upload_folder, limit, parts_limit=SMALL.size) as upload:
        return await run_in_threadpool(_put, services, caller, upload)


def _put(services: Services, caller: Principal, upload: Upload) -> LanguageModelOut:
    body = parse_json(LanguageModelRequest, upload.request or b"{}", SMALL, "request")
    project = caller.project_for(body.project)
    with upload.path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        file.seek(max(upload.size - HEAD_BYTES, 0))
        order, ngrams = read_counts(head, file.read())
    # The object first: otherwise a job could name the version before its file is stored.
    # `spool.background.content_deleter` later deletes what an interrupted request leaves.
    stored = services.objects.put_file(store.key_of(upload.sha256), upload.path)
    if stored.sha256 != upload.sha256:
        raise ObjectDamaged("The file was damaged while it was stored; send it again.")
    failpoint("language_model.stored")
    with services.database.begin() as tx:
        added = store.add_version(
            tx,
            project,
            body.name,
            sha256=upload.sha256,
            size=upload.size,
            ngram_order=order,
            ngrams=ngrams,
            model=body.model,
            author=caller.name,
        )
    if services.objects.head(store.key_of(upload.sha256)) is None:
        # The last version with the same file was deleted in the meantime.
        services.objects.put_file(store.key_of(upload.sha256), upload.path)
    return LanguageModelOut.of(added)


def list_language_models(services: ServicesDep, project: ListedProject) -> ListOf[LanguageModelOut]:
    """List language models.

    The latest version of each, by project and name.
    """
    with services.database.read() as tx:
        return ListOf(items=list(map(LanguageModelOut.of, store.list_language_models(tx, project))))


def get_language_model(
    services: ServicesDep, caller: CallerDep, language_model: Reference, project: Project | None = None
) -> LanguageModelOut:
    """Show a language model.

    A version of it, by default the latest.
    """
    name, version = parse_reference(language_model)
    with services.database.read() as tx:
        return LanguageModelOut.of(store.get_language_model(tx, caller.project_for(project), name, version))


def remove(
    services: ServicesDep, caller: CallerDep, language_model: Reference, project: Project | None = None
) -> None:
    """Delete a language model.

    All its versions and their files. Refused while a job that uses it has not ended; transcripts are kept.
    """
    with services.database.begin() as tx:
        unused = store.remove_language_model(tx, caller.project_for(project), language_model)
    failpoint("language_model.removed")
    for sha256 in unused:
        try:
            services.objects.delete(store.key_of(sha256))
        except StorageError as error:  # the deleter tries again later
            log.warning("language model's file not deleted yet", sha256=sha256, error=error.message)
