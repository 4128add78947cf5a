"""The calls about what a project keeps: connections, glossaries, language models, sources, webhooks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from spool.client.exchange import Ask, Flow, Upload, all_pages, body_of, read, read_list, receive
from spool.client.fields import Options, SourceFields
from spool.client.jobs import LONGEST_PAGE
from spool.schemas.common import Page
from spool.schemas.glossaries import GlossaryDetail, GlossaryOut, LanguageModelOut, SuggestionOut
from spool.schemas.outputs import Access, ConnectionOut, ExportOut
from spool.schemas.sources import ItemState, SourceItemOut, WatchedSourceOut
from spool.schemas.webhooks import DeliveryOut, DeliveryState, WebhookOut, WebhookSecret

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
    access: Access | None = None,
    project: str | None = None,
) -> Flow[ConnectionOut]:
    """Store the credentials of a bucket under a name that the project's outputs may use, or its sources
    (`access` `read`), or both. The secret is stored encrypted and not shown again."""
    body = {"name": name, "prefix": prefix, "key_id": key_id, "secret": secret}
    body |= body_of({"endpoint": endpoint, "region": region, "access": access, "project": project})
    return read(Ask("POST", _CONNECTIONS, json=body), ConnectionOut)


def connections(*, project: str | None = None) -> Flow[list[ConnectionOut]]:
    """All connections, by project and name."""
    return read_list(Ask("GET", _CONNECTIONS, {"project": project}), ConnectionOut)


def remove_connection(name: str, *, project: str | None = None) -> Flow[None]:
    """Delete a connection and its secret."""
    yield from receive(Ask("DELETE", f"{_CONNECTIONS}/{name}", {"project": project}))


def export_again(job_id: str) -> Flow[list[ExportOut]]:
    """Write the files of a job's output again."""
    return read_list(Ask("POST", f"/v1/jobs/{job_id}/exports"), ExportOut)


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
) -> Flow[GlossaryOut]:
    """Add a version of a glossary, from one of `phrases`, `text` (one phrase per line) and `csv`; with
    `extend` it includes the latest version's phrases. With `auto_add_after` names that corrections wrote in
    that many recordings are added automatically. If the latest version has the same phrases, that one is
    returned."""
    body = body_of({"name": name, "project": project, "phrases": phrases, "text": text, "csv": csv})
    body |= body_of({"weight": weight, "auto_add_after": auto_add_after, "extend": extend or None})
    return read(Ask("POST", _GLOSSARIES, json=body), GlossaryOut)


def glossaries(*, project: str | None = None) -> Flow[list[GlossaryOut]]:
    """The latest version of every glossary, by project and name."""
    return read_list(Ask("GET", _GLOSSARIES, {"project": project}), GlossaryOut)


def glossary(reference: str, *, project: str | None = None) -> Flow[GlossaryDetail]:
    """`NAME`, the latest version, or `NAME@VERSION`, with its phrases."""
    return read(Ask("GET", f"{_GLOSSARIES}/{reference}", {"project": project}), GlossaryDetail)


def glossary_suggestions(
    *, project: str | None = None, glossary: str | None = None, recordings: int = 1, limit: int = 100
) -> Flow[list[SuggestionOut]]:
    """Names that corrections wrote in at least this many recordings, the most frequent first, without those
    in `glossary`."""
    query = {"project": project, "glossary": glossary, "recordings": recordings, "limit": limit}
    return read_list(Ask("GET", "/v1/glossary-suggestions", query), SuggestionOut)


def remove_glossary(name: str, *, project: str | None = None) -> Flow[None]:
    """Delete all versions of a glossary. Jobs keep their phrases."""
    yield from receive(Ask("DELETE", f"{_GLOSSARIES}/{name}", {"project": project}))


def put_language_model(
    name: str, file: Path, *, model: str | None = None, project: str | None = None
) -> Flow[LanguageModelOut]:
    """Add a version of a language model from an ARPA file over the tokens of `model`. If the latest version
    has the same file, that one is returned. Raises OSError for a file that cannot be read."""
    request = body_of({"name": name, "project": project, "model": model})
    upload = Upload(request, file, file.name, "application/octet-stream")
    return read(Ask("POST", _MODELS, upload=upload), LanguageModelOut)


def language_models(*, project: str | None = None) -> Flow[list[LanguageModelOut]]:
    """The latest version of every language model, by project and name."""
    return read_list(Ask("GET", _MODELS, {"project": project}), LanguageModelOut)


def language_model(reference: str, *, project: str | None = None) -> Flow[LanguageModelOut]:
    """`NAME`, the latest version, or `NAME@VERSION`."""
    return read(Ask("GET", f"{_MODELS}/{reference}", {"project": project}), LanguageModelOut)


def remove_language_model(name: str, *, project: str | None = None) -> Flow[None]:
    """Delete all versions of a language model. Refused while a job that uses it has not ended."""
    yield from receive(Ask("DELETE", f"{_MODELS}/{name}", {"project": project}))


def watch(source: str, **fields: Unpack[SourceFields]) -> Flow[WatchedSourceOut]:
    """Watch `s3://bucket/prefix/` or `file:///folder/`: every recording in it is submitted once, and each one
    that is added or changes. Omitted fields have the server's defaults."""
    return read(Ask("POST", _SOURCES, json={"source": source, **body_of(fields)}), WatchedSourceOut)


def sources(*, project: str | None = None) -> Flow[list[WatchedSourceOut]]:
    """All watched folders and buckets, newest first."""
    return read_list(Ask("GET", _SOURCES, {"project": project}), WatchedSourceOut)


def source(source_id: str) -> Flow[WatchedSourceOut]:
    """One source, with how much it found."""
    return read(Ask("GET", f"{_SOURCES}/{source_id}"), WatchedSourceOut)


def change_source(
    source_id: str,
    *,
    name: str | None = None,
    every_seconds: float | None = None,
    settle_seconds: float | None = None,
    paused: bool | None = None,
    options: Options | None = None,
) -> Flow[WatchedSourceOut]:
    """Change the given fields. `options` replace those of its future jobs; the others stay."""
    body = body_of({"name": name, "every_seconds": every_seconds, "settle_seconds": settle_seconds})
    body |= body_of({"paused": paused, "options": options})
    return read(Ask("PATCH", f"{_SOURCES}/{source_id}", json=body), WatchedSourceOut)


def pause_source(source_id: str) -> Flow[WatchedSourceOut]:
    """Stop listing a source until it is resumed."""
    return read(Ask("POST", f"{_SOURCES}/{source_id}/pause"), WatchedSourceOut)


def resume_source(source_id: str) -> Flow[WatchedSourceOut]:
    """List a source again, starting now."""
    return read(Ask("POST", f"{_SOURCES}/{source_id}/resume"), WatchedSourceOut)


def check_source(source_id: str) -> Flow[WatchedSourceOut]:
    """List a source now."""
    return read(Ask("POST", f"{_SOURCES}/{source_id}/check"), WatchedSourceOut)


def remove_source(source_id: str) -> Flow[None]:
    """Stop watching; its jobs are kept."""
    yield from receive(Ask("DELETE", f"{_SOURCES}/{source_id}"))


def source_item_page(
    source_id: str, *, state: ItemState | None = None, limit: int = LONGEST_PAGE, cursor: str | None = None
) -> Flow[Page[SourceItemOut]]:
    """One page of the versions of files that it found, newest first."""
    query = {"state": state, "cursor": cursor, "limit": limit}
    return read(Ask("GET", f"{_SOURCES}/{source_id}/items", query), Page[SourceItemOut])


source_items = all_pages(source_item_page)


def add_webhook(
    url: str,
    *,
    events: Sequence[str] | None = None,
    project: str | None = None,
    batch: str | None = None,
    description: str = "",
) -> Flow[WebhookSecret]:
    """Send events to a URL, by default every end of a job or batch. Its secret is shown once."""
    body = body_of({"events": events or None, "project": project, "batch": batch})
    return read(Ask("POST", _WEBHOOKS, json={"url": url, "description": description} | body), WebhookSecret)


def webhooks(*, project: str | None = None) -> Flow[list[WebhookOut]]:
    """All webhooks, newest first."""
    return read_list(Ask("GET", _WEBHOOKS, {"project": project}), WebhookOut)


def webhook(webhook_id: str) -> Flow[WebhookOut]:
    """One webhook, with the results of its deliveries."""
    return read(Ask("GET", f"{_WEBHOOKS}/{webhook_id}"), WebhookOut)


def remove_webhook(webhook_id: str) -> Flow[None]:
    """Stop sending, and delete its deliveries."""
    yield from receive(Ask("DELETE", f"{_WEBHOOKS}/{webhook_id}"))


def rotate_webhook(webhook_id: str) -> Flow[WebhookSecret]:
    """Replace the secret; the previous one also signs for a day."""
    return read(Ask("POST", f"{_WEBHOOKS}/{webhook_id}/rotate"), WebhookSecret)


def enable_webhook(webhook_id: str) -> Flow[WebhookOut]:
    """Enable a webhook that was disabled."""
    return read(Ask("POST", f"{_WEBHOOKS}/{webhook_id}/enable"), WebhookOut)


def test_webhook(webhook_id: str) -> Flow[DeliveryOut]:
    """Send a message of the type `webhook.test`."""
    return read(Ask("POST", f"{_WEBHOOKS}/{webhook_id}/test"), DeliveryOut)


def delivery_page(
    webhook_id: str,
    *,
    state: DeliveryState | None = None,
    limit: int = LONGEST_PAGE,
    cursor: str | None = None,
) -> Flow[Page[DeliveryOut]]:
    """One page of a webhook's deliveries, newest first."""
    query = {"state": state, "cursor": cursor, "limit": limit}
    return read(Ask("GET", f"{_WEBHOOKS}/{webhook_id}/deliveries", query), Page[DeliveryOut])


deliveries = all_pages(delivery_page)


def replay_delivery(webhook_id: str, delivery_id: str) -> Flow[DeliveryOut]:
    """Send a message again, with its original id."""
    return read(Ask("POST", f"{_WEBHOOKS}/{webhook_id}/deliveries/{delivery_id}/replay"), DeliveryOut)
