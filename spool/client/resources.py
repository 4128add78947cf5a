"""The calls about what a project keeps: connections, glossaries, language models, sources, webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from spool import schemas
from spool.client.exchange import Ask, Flow, Upload, all_pages, body_of, read, read_list, receive
from spool.client.fields import SourceFields
from spool.client.jobs import LONGEST_PAGE
from spool.client.options import Options

_CONNECTIONS, _GLOSSARIES, _MODELS = "/v1/connections", "/v1/glossaries", "/v1/language-models"
_SOURCES, _WEBHOOKS = "/v1/sources", "/v1/webhooks"


def add_connection(
    name: str,
    *,
    prefix: str,
    key_id: str,
    secret: str,
    endpoint: str | None = None,
    region: str | None = None,
    access: schemas.Access | None = None,
    project: str | None = None,
) -> Flow[schemas.ConnectionOut]:
    """Store the credentials of a bucket under a name that the project's outputs may use, or its sources
    (`access` `read`), or both. The secret is stored encrypted and not shown again."""
    body = {"name": name, "prefix": prefix, "key_id": key_id, "secret": secret}
    body |= body_of({"endpoint": endpoint, "region": region, "access": access, "project": project})
    return read(Ask("POST", _CONNECTIONS, json=body), schemas.ConnectionOut)


def connections(*, project: str | None = None) -> Flow[list[schemas.ConnectionOut]]:
    """All connections, by project and name."""
    return read_list(Ask("GET", _CONNECTIONS, {"project": project}), schemas.ConnectionOut)


def remove_connection(name: str, *, project: str | None = None) -> Flow[None]:
    """Delete a connection and its secret."""
    yield from receive(Ask("DELETE", f"{_CONNECTIONS}/{name}", {"project": project}))


def export_again(job_id: str) -> Flow[list[schemas.ExportOut]]:
    """Write the files of a job's output again."""
    return read_list(Ask("POST", f"/v1/jobs/{job_id}/exports"), schemas.ExportOut)


def put_glossary(
    name: str,
    *,
    phrases: Sequence[str] | None = None,
    text: str | None = None,
    csv: str | None = None,
    weight: float | None = None,
    extend: bool = False,
    auto_add_after: int | None = None,
    project: str | None = None,
) -> Flow[schemas.GlossaryOut]:
    """Add a version of a glossary, from one of `phrases`, `text` (one phrase per line) and `csv`; with
    `extend` it includes the latest version's phrases. With `auto_add_after` names that corrections wrote in
    that many recordings are added automatically. If the latest version has the same phrases, that one is
    returned."""
    body = body_of({"name": name, "project": project, "phrases": phrases, "text": text, "csv": csv})
    body |= body_of({"weight": weight, "auto_add_after": auto_add_after, "extend": extend or None})
    return read(Ask("POST", _GLOSSARIES, json=body), schemas.GlossaryOut)


def glossaries(*, project: str | None = None) -> Flow[list[schemas.GlossaryOut]]:
    """The latest version of every glossary, by project and name."""
    return read_list(Ask("GET", _GLOSSARIES, {"project": project}), schemas.GlossaryOut)


def glossary(reference: str, *, project: str | None = None) -> Flow[schemas.GlossaryDetail]:
    """`NAME`, the latest version, or `NAME@VERSION`, with its phrases."""
    return read(Ask("GET", f"{_GLOSSARIES}/{reference}", {"project": project}), schemas.GlossaryDetail)


def glossary_suggestions(
    *, project: str | None = None, glossary: str | None = None, recordings: int = 1, limit: int = 100
) -> Flow[list[schemas.SuggestionOut]]:
    """Names that corrections wrote in at least this many recordings, the most frequent first, without those
    in `glossary`."""
    query = {"project": project, "glossary": glossary, "recordings": recordings, "limit": limit}
    return read_list(Ask("GET", "/v1/glossary-suggestions", query), schemas.SuggestionOut)


def remove_glossary(name: str, *, project: str | None = None) -> Flow[None]:
    """Delete all versions of a glossary. Jobs keep their phrases."""
    yield from receive(Ask("DELETE", f"{_GLOSSARIES}/{name}", {"project": project}))


def put_language_model(
    name: str, file: Path, *, model: str | None = None, project: str | None = None
) -> Flow[schemas.LanguageModelOut]:
    """Add a version of a language model from an ARPA file over the tokens of `model`. If the latest version
    has the same file, that one is returned. Raises OSError for a file that cannot be read."""
    request = body_of({"name": name, "project": project, "model": model})
    upload = Upload(request, file, file.name, "application/octet-stream")
    return read(Ask("POST", _MODELS, upload=upload), schemas.LanguageModelOut)


def language_models(*, project: str | None = None) -> Flow[list[schemas.LanguageModelOut]]:
    """The latest version of every language model, by project and name."""
    return read_list(Ask("GET", _MODELS, {"project": project}), schemas.LanguageModelOut)


def language_model(reference: str, *, project: str | None = None) -> Flow[schemas.LanguageModelOut]:
    """`NAME`, the latest version, or `NAME@VERSION`."""
    return read(Ask("GET", f"{_MODELS}/{reference}", {"project": project}), schemas.LanguageModelOut)


def remove_language_model(name: str, *, project: str | None = None) -> Flow[None]:
    """Delete all versions of a language model. Refused while a job that uses it has not ended."""
    yield from receive(Ask("DELETE", f"{_MODELS}/{name}", {"project": project}))


def watch(source: str, **fields: Unpack[SourceFields]) -> Flow[schemas.WatchedSourceOut]:
    """Watch `s3://bucket/prefix/` or `file:///folder/`: every recording in it is submitted once, and each one
    that is added or changes. Omitted fields have the server's defaults."""
    return read(Ask("POST", _SOURCES, json={"source": source, **body_of(fields)}), schemas.WatchedSourceOut)


def sources(*, project: str | None = None) -> Flow[list[schemas.WatchedSourceOut]]:
    """All watched folders and buckets, newest first."""
    return read_list(Ask("GET", _SOURCES, {"project": project}), schemas.WatchedSourceOut)


def source(source_id: str) -> Flow[schemas.WatchedSourceOut]:
    """One source, with how much it found."""
    return read(Ask("GET", f"{_SOURCES}/{source_id}"), schemas.WatchedSourceOut)


def change_source(
    source_id: str,
    *,
    name: str | None = None,
    every_seconds: float | None = None,
    settle_seconds: float | None = None,
    paused: bool | None = None,
    options: Options | None = None,
) -> Flow[schemas.WatchedSourceOut]:
    """Change the given fields. `options` replace those of its future jobs; the others stay."""
    body = body_of({"name": name, "every_seconds": every_seconds, "settle_seconds": settle_seconds})
    body |= body_of({"paused": paused, "options": options})
    return read(Ask("PATCH", f"{_SOURCES}/{source_id}", json=body), schemas.WatchedSourceOut)


def pause_source(source_id: str) -> Flow[schemas.WatchedSourceOut]:
    """Stop listing a source until it is resumed."""
    return read(Ask("POST", f"{_SOURCES}/{source_id}/pause"), schemas.WatchedSourceOut)


def resume_source(source_id: str) -> Flow[schemas.WatchedSourceOut]:
    """List a source again, starting now."""
    return read(Ask("POST", f"{_SOURCES}/{source_id}/resume"), schemas.WatchedSourceOut)


def check_source(source_id: str) -> Flow[schemas.WatchedSourceOut]:
    """List a source now."""
    return read(Ask("POST", f"{_SOURCES}/{source_id}/check"), schemas.WatchedSourceOut)


def remove_source(source_id: str) -> Flow[None]:
    """Stop watching; its jobs are kept."""
    yield from receive(Ask("DELETE", f"{_SOURCES}/{source_id}"))


def source_item_page(
    source_id: str,
    *,
    state: schemas.ItemState | None = None,
    limit: int = LONGEST_PAGE,
    cursor: str | None = None,
) -> Flow[schemas.Page[schemas.SourceItemOut]]:
    """One page of the versions of files that it found, newest first."""
    query = {"state": state, "cursor": cursor, "limit": limit}
    return read(Ask("GET", f"{_SOURCES}/{source_id}/items", query), schemas.Page[schemas.SourceItemOut])


source_items = all_pages(source_item_page)


def add_webhook(
    url: str,
    *,
    events: Sequence[str] | None = None,
    project: str | None = None,
    batch: str | None = None,
    description: str = "",
) -> Flow[schemas.WebhookSecret]:
    """Send events to a URL, by default every end of a job or batch. Its secret is shown once."""
    body = body_of({"events": events or None, "project": project, "batch": batch})
    return read(
        Ask("POST", _WEBHOOKS, json={"url": url, "description": description} | body), schemas.WebhookSecret
    )


def webhooks(*, project: str | None = None) -> Flow[list[schemas.WebhookOut]]:
    """All webhooks, newest first."""
    return read_list(Ask("GET", _WEBHOOKS, {"project": project}), schemas.WebhookOut)


def webhook(webhook_id: str) -> Flow[schemas.WebhookOut]:
    """One webhook, with the results of its deliveries."""
    return read(Ask("GET", f"{_WEBHOOKS}/{webhook_id}"), schemas.WebhookOut)


def remove_webhook(webhook_id: str) -> Flow[None]:
    """Stop sending, and delete its deliveries."""
    yield from receive(Ask("DELETE", f"{_WEBHOOKS}/{webhook_id}"))


def rotate_webhook(webhook_id: str) -> Flow[schemas.WebhookSecret]:
    """Replace the secret; the previous one also signs for a day."""
    return read(Ask("POST", f"{_WEBHOOKS}/{webhook_id}/rotate"), schemas.WebhookSecret)


def enable_webhook(webhook_id: str) -> Flow[schemas.WebhookOut]:
    """Enable a webhook that was disabled."""
    return read(Ask("POST", f"{_WEBHOOKS}/{webhook_id}/enable"), schemas.WebhookOut)


def test_webhook(webhook_id: str) -> Flow[schemas.DeliveryOut]:
    """Send a message of the type `webhook.test`."""
    return read(Ask("POST", f"{_WEBHOOKS}/{webhook_id}/test"), schemas.DeliveryOut)


def delivery_page(
    webhook_id: str,
    *,
    state: schemas.DeliveryState | None = None,
    limit: int = LONGEST_PAGE,
    cursor: str | None = None,
) -> Flow[schemas.Page[schemas.DeliveryOut]]:
    """One page of a webhook's deliveries, newest first."""
    query = {"state": state, "cursor": cursor, "limit": limit}
    return read(Ask("GET", f"{_WEBHOOKS}/{webhook_id}/deliveries", query), schemas.Page[schemas.DeliveryOut])


deliveries = all_pages(delivery_page)


def replay_delivery(webhook_id: str, delivery_id: str) -> Flow[schemas.DeliveryOut]:
    """Send a message again, with its original id."""
    return read(Ask("POST", f"{_WEBHOOKS}/{webhook_id}/deliveries/{delivery_id}/replay"), schemas.DeliveryOut)
