"""From a request to a webhook: checks its URL as far as possible without DNS, and writes its row.

The dispatcher checks every connection again, with the addresses that the name resolves to.
"""

from urllib.parse import urlsplit

from api.auth.principal import Principal, get_visible_batch
from api.services import Services
from spool.errors import Forbidden, InvalidRequest
from spool.net.address_policy import AddressRules, HostRefused
from spool.net.pinned_http import check_scheme
from spool.schemas.webhooks import WebhookRequest
from spool.store.webhooks import NewWebhook, Webhook, create_webhook


def create_from_request(services: Services, caller: Principal, body: WebhookRequest) -> tuple[Webhook, str]:
    """The new webhook and its secret. Raises InvalidRequest, Forbidden, NotFound and Conflict."""
    url = _check_url(body.url, services.settings.webhook_addresses)
    project = caller.project_for(body.project)
    with services.database.begin() as tx:
        if body.batch is not None:
            batch = get_visible_batch(tx, caller, body.batch)
            project = caller.project_for(body.project or batch.project)
            if batch.project != project:
                raise InvalidRequest(f"batch: {batch.id} belongs to the project {batch.project}.")
        new = NewWebhook(project, url, body.events, body.batch, body.description, caller.key_id)
        return create_webhook(tx, new, services.secret_box)


def _check_url(url: str, rules: AddressRules) -> str:
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequest(f"url: is not a web address: {error}.") from None
    if not host or "\\" in url or " " in url:
        raise InvalidRequest("url: is not a web address: it needs a host and no spaces or backslashes.")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest(
            "url: must not contain a user name or password; verify the signature of each message instead."
        )
    try:
        check_scheme(rules, parts.scheme, host)
    except HostRefused as error:
        raise Forbidden(f"url: {error}") from None
    return parts._replace(fragment="").geturl()
