"""From a request to a webhook: checks its URL as far as possible without DNS, and writes its row.

The dispatcher checks every connection again, with the addresses that the name resolves to.
"""

from api.auth.principal import Principal, get_visible_batch
from api.services import Services
from spool.errors import Forbidden, InvalidRequest
from spool.net.address_policy import AddressRules, HostRefused
from spool.net.pinned_http import check_scheme, split_address
from spool.schemas.webhooks import WebhookRequest
from spool.store.webhooks import create_webhook
from spool.tables.webhooks import NewWebhook, Webhook


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
        new = NewWebhook(project, url, tuple(body.events), body.batch, body.description, caller.key_id)
        return create_webhook(tx, new, services.secret_box)


def _check_url(url: str, rules: AddressRules) -> str:
    try:
        parts = split_address(url)
        check_scheme(rules, parts.scheme, parts.hostname or "")
    except HostRefused as error:
        raise Forbidden(f"url: {error}") from None
    except ValueError as error:
        raise InvalidRequest(f"url: {error}") from None
    return parts.geturl()
