"""`spool webhooks`: who is told of events, what they were sent, and once more. Clients of the HTTP API."""

import time
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from api.cli.connection import Exit, Json, Url, connected, err, out, print_json
from spool.schemas.webhooks import DEFAULT_EVENTS, DeliveryOut, WebhookOut, WebhookSecret

app = typer.Typer(no_args_is_help=True, help="Have events sent to your own servers (Standard Webhooks).")

WebhookId = Annotated[
    str, typer.Argument(metavar="ID", help="A webhook's id, as `spool webhooks list` shows it.")
]
_POLL_S = 0.5
_STYLES = {"enabled": "green", "failing": "yellow", "disabled": "red", "delivered": "green", "failed": "red"}


@app.command()
def add(
    address: Annotated[str, typer.Argument(metavar="URL", help="Where to send them: an https:// address.")],
    event: Annotated[
        list[str] | None,
        typer.Option(help=f"Of which events; repeat for several. Unless given: {', '.join(DEFAULT_EVENTS)}."),
    ] = None,
    batch: Annotated[str | None, typer.Option(help="Of this batch and its jobs alone.")] = None,
    project: Annotated[str | None, typer.Option(help="Whose; the key's own project unless given.")] = None,
    description: Annotated[str, typer.Option(help="For people.")] = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Have events sent to an address; shows the secret that signs them, this once."""
    with connected(url) as (spool, _):
        made = spool.add_webhook(address, events=event, project=project, batch=batch, description=description)
    _print_secret(made, as_json=as_json)


@app.command("list")
def listed(
    project: Annotated[str | None, typer.Option(help="One project's.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Every webhook, and how it fares."""
    with connected(url) as (spool, _):
        found = spool.webhooks(project=project)
    if as_json:
        print_json(found)
    elif found:
        out.print(_table(found))
    else:
        out.print("no webhooks", style="dim")


@app.command()
def remove(webhook_id: WebhookId, url: Url = None) -> None:
    """Send nothing more there, and forget what was sent."""
    with connected(url) as (spool, _):
        spool.remove_webhook(webhook_id)
    out.print(f"{webhook_id} is removed")


@app.command()
def rotate(webhook_id: WebhookId, url: Url = None, as_json: Json = False) -> None:
    """Make a new secret and show it, this once; the one so far signs beside it for a day."""
    with connected(url) as (spool, _):
        made = spool.rotate_webhook(webhook_id)
    _print_secret(made, as_json=as_json)


@app.command()
def enable(webhook_id: WebhookId, url: Url = None) -> None:
    """Send there again after it was disabled."""
    with connected(url) as (spool, _):
        spool.enable_webhook(webhook_id)
    out.print(f"{webhook_id} is enabled")


@app.command()
def deliveries(
    webhook_id: WebhookId,
    state: Annotated[str | None, typer.Option(help="pending, delivered or failed.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """What it was sent lately, and what came of it."""
    with connected(url) as (spool, _):
        page = spool.delivery_page(webhook_id, state=state, limit=limit)
    if as_json:
        print_json(page)
    elif page.items:
        out.print(_log(page.items))
    else:
        out.print("nothing was sent", style="dim")


@app.command()
def replay(
    webhook_id: WebhookId,
    delivery: Annotated[
        list[str] | None, typer.Argument(metavar="[DELIVERY]...", help="Ids of deliveries.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All that were given up.")] = False,
    url: Url = None,
) -> None:
    """Send messages again, under their own ids."""
    if bool(delivery) == failed:
        raise typer.BadParameter("Name deliveries, or say --failed.")
    with connected(url) as (spool, _):
        ids = delivery or [one.id for one in spool.deliveries(webhook_id, state="failed")]
        for one in ids:
            spool.replay_delivery(webhook_id, one)
    out.print(f"{len(ids)} will be sent again")


@app.command("test")
def tried(webhook_id: WebhookId, url: Url = None) -> None:
    """Send a message of the type webhook.test, and say what came of its first try."""
    with connected(url) as (spool, _):
        sent = spool.test_webhook(webhook_id)
        with err.status("waiting for the receiver"):
            while not sent.tries and sent.state == "pending":
                time.sleep(_POLL_S)
                found = spool.delivery_page(webhook_id, limit=50).items
                sent = next((one for one in found if one.id == sent.id), sent)
    out.print(_words(sent))
    if sent.state != "delivered":
        raise typer.Exit(Exit.FAILED)


def _print_secret(made: WebhookSecret, *, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    typer.echo(made.secret)
    err.print(
        Text(f"{made.id}: its secret is shown this once. Try it: spool webhooks test {made.id}"),
        soft_wrap=True,
    )


def _table(found: list[WebhookOut]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("webhook", no_wrap=True)
    for title in ("state", "project", "arrived"):
        table.add_column(title, no_wrap=True)
    table.add_column("where, what, why", overflow="fold")
    for one in found:
        table.add_row(
            one.id,
            Text(one.state, _STYLES[one.state]),
            one.project,
            f"{one.delivered} of {one.delivered + one.given_up}",
            Text("\n".join(filter(None, (one.url, ", ".join(one.events), one.description, one.reason)))),
        )
    return table


def _log(items: list[DeliveryOut]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("delivery", no_wrap=True)
    for title in ("event", "state", "tries"):
        table.add_column(title, no_wrap=True)
    table.add_column("last", overflow="fold")
    for one in items:
        tries = sum(not each.replayed for each in one.tries)
        table.add_row(one.id, one.type, Text(one.state, _STYLES.get(one.state, "")), str(tries), _words(one))
    return table


def _words(one: DeliveryOut) -> Text:
    last = next((each for each in reversed(one.tries) if not each.replayed), None)
    if last is None:
        return Text("not tried yet")
    answered = f"answered {last.status}" if last.status is not None else ""
    told = ", ".join(filter(None, (answered, last.error)))
    again = f"; again at {one.next_try_at:%Y-%m-%d %H:%M:%S} UTC" if one.next_try_at else ""
    return Text(f"{told} in {last.milliseconds} ms{again}")
