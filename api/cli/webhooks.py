"""`spool webhooks`: manages webhooks and their deliveries. Clients of the HTTP API."""

from typing import Annotated, cast

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.connection import Exit, Server, Url, connect, err, out, print_json
from api.cli.tables import Cell
from spool import clock
from spool.commandline.app import new_app
from spool.errors import InvalidRequest
from spool.schemas.webhooks import DEFAULT_EVENTS, DeliveryOut, DeliveryState, WebhookOut, WebhookSecret

app = new_app("Send events to your own servers (Standard Webhooks).", "webhooks")

WebhookId = Annotated[str, Parameter(name="ID", help="A webhook's id, as `spool webhooks list` shows it.")]
_POLL_S = 0.5
_STYLES = {"enabled": "green", "failing": "yellow", "disabled": "red", "delivered": "green", "failed": "red"}


@app.command
def add(
    address: Annotated[str, Parameter(name="URL", help="The https:// address to send events to.")],
    /,
    *,
    event: Annotated[
        list[str] | None,
        Parameter(help=f"Event type to send; repeat for several. Default: {', '.join(DEFAULT_EVENTS)}."),
    ] = None,
    batch: Annotated[str | None, Parameter(help="Send only events of this batch and its jobs.")] = None,
    project: Annotated[
        str | None, Parameter(help="Project whose events are sent. Default: the key's project.")
    ] = None,
    description: Annotated[str, Parameter(help="Description, for display.")] = "",
    server: Server = Server(),
) -> None:
    """Create a webhook and print its signing secret. The secret is not shown again."""
    with server.connect() as spool:
        webhook = spool.add_webhook(
            address, events=event, project=project, batch=batch, description=description
        )
    _print_secret(server, webhook)


@app.command(name="list")
def list_webhooks(
    *,
    project: Annotated[str | None, Parameter(help="List only webhooks of this project.")] = None,
    server: Server = Server(),
) -> None:
    """List webhooks and their state."""
    with server.connect() as spool:
        webhooks = spool.webhooks(project=project)
    titles = ("webhook", "state", "project", "delivered", "url, events, description")
    server.show_rows(webhooks, "no webhooks", titles, _cells)


@app.command
def remove(webhook_id: WebhookId, /, *, url: Url = None) -> None:
    """Delete a webhook and its delivery log."""
    with connect(url) as spool:
        spool.remove_webhook(webhook_id)
    out.print(f"{webhook_id} removed")


@app.command
def rotate(webhook_id: WebhookId, /, *, server: Server = Server()) -> None:
    """Replace the signing secret and print the new one.

    Messages are signed with both secrets for a day. The secret is not shown again.
    """
    with server.connect() as spool:
        webhook = spool.rotate_webhook(webhook_id)
    _print_secret(server, webhook)


@app.command
def enable(webhook_id: WebhookId, /, *, url: Url = None) -> None:
    """Enable a webhook that was disabled."""
    with connect(url) as spool:
        spool.enable_webhook(webhook_id)
    out.print(f"{webhook_id} enabled")


@app.command
def deliveries(
    webhook_id: WebhookId,
    /,
    *,
    state: Annotated[str | None, Parameter(help="List only pending, delivered or failed deliveries.")] = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=200))] = 20,
    server: Server = Server(),
) -> None:
    """List the latest deliveries and their results."""
    with server.connect() as spool:
        page = spool.delivery_page(webhook_id, state=cast("DeliveryState | None", state), limit=limit)
    server.show_rows(page, "no deliveries", ("delivery", "event", "state", "tries", "last"), _tries)


@app.command
def replay(
    webhook_id: WebhookId,
    /,
    *delivery: Annotated[str, Parameter(name="DELIVERY", help="Ids of deliveries.")],
    failed: Annotated[bool, Parameter(help="Replay every failed delivery.")] = False,
    url: Url = None,
) -> None:
    """Send deliveries again, with their original ids."""
    if bool(delivery) == failed:
        raise InvalidRequest("Name deliveries, or pass --failed.")
    with connect(url) as spool:
        ids = list(delivery) or [failure.id for failure in spool.deliveries(webhook_id, state="failed")]
        for delivery_id in ids:
            spool.replay_delivery(webhook_id, delivery_id)
    out.print(f"{len(ids)} deliveries will be sent again")


@app.command(name="test")
def send_test(webhook_id: WebhookId, /, *, url: Url = None) -> None:
    """Send a webhook.test message and print the result of the first attempt."""
    with connect(url) as spool:
        sent = spool.test_webhook(webhook_id)
        with err.status("waiting for the receiver"):
            while not sent.tries and sent.state == "pending":
                clock.sleep(_POLL_S)
                latest = spool.delivery_page(webhook_id, limit=50).items
                sent = next((delivery for delivery in latest if delivery.id == sent.id), sent)
    out.print(_describe(sent))
    if sent.state != "delivered":
        raise SystemExit(Exit.FAILED)


def _print_secret(server: Server, webhook: WebhookSecret) -> None:
    if server.as_json:
        print_json(webhook)
        return
    print(webhook.secret)
    err.print(
        Text(f"{webhook.id}: this secret is not shown again. Try it: spool webhooks test {webhook.id}"),
        soft_wrap=True,
    )


def _cells(webhook: WebhookOut) -> list[Cell]:
    about = (webhook.url, ", ".join(webhook.events), webhook.description, webhook.reason)
    return [
        webhook.id,
        Text(webhook.state, _STYLES[webhook.state]),
        webhook.project,
        f"{webhook.delivered} of {webhook.delivered + webhook.given_up}",
        "\n".join(filter(None, about)),
    ]


def _tries(delivery: DeliveryOut) -> list[Cell]:
    tries = sum(not attempt.replayed for attempt in delivery.tries)
    state = Text(delivery.state, _STYLES.get(delivery.state, ""))
    return [delivery.id, delivery.type, state, tries, _describe(delivery)]


def _describe(delivery: DeliveryOut) -> Text:
    last = next((attempt for attempt in reversed(delivery.tries) if not attempt.replayed), None)
    if last is None:
        return Text("not attempted yet")
    answered = f"answered {last.status}" if last.status is not None else ""
    result = ", ".join(filter(None, (answered, last.error)))
    again = f"; next attempt at {delivery.next_try_at:%Y-%m-%d %H:%M:%S} UTC" if delivery.next_try_at else ""
    return Text(f"{result} in {last.milliseconds} ms{again}")
