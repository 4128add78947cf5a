"""The services behind the routes: settings, stores, queue, background threads and probes.

Opened once per process. This module owns the order in which they are opened and closed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

from anyio import CapacityLimiter
from celery import Celery
from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from api.auth.key_cache import KeyCache
from api.auth.rate_limit import Buckets
from api.delivery.event_broker import EventBroker
from api.delivery.webhook_dispatcher import WebhookDispatcher
from api.fleet_view import FleetView
from api.live.services import LiveServices, live_services
from api.presenters.rendered import RenderedTranscripts
from api.probes import Probes
from api.submission.uploads import drop_remains
from spool import clock
from spool.background.content_deleter import ContentDeleter
from spool.background.exporter import Exporter
from spool.background.source_signer import SourceSigner
from spool.background.sweeper import Sweeper
from spool.broker.celery_app import celery_app, queue_depth
from spool.domain.jobs import queue_name
from spool.objects import ObjectStore, object_store
from spool.settings import Settings
from spool.settings.secret_key import SecretBox, secret_box
from spool.settings.signing_key import Signer, receipt_signer
from spool.store import Database
from spool.store.jobs import JobFilter, list_jobs

# Wrong keys from one address. 256 bits cannot be guessed; the limit spares the database the queries.
_GUESSES, _GUESSES_A_SECOND = 60, 2.0


@dataclass(frozen=True)
class Services:
    """The parts behind the routes."""

    settings: Settings
    database: Database
    objects: ObjectStore
    queue: Celery
    sweeper: Sweeper
    deleter: ContentDeleter
    exporter: Exporter
    signer: SourceSigner
    probes: Probes
    key_cache: KeyCache
    limits: Buckets
    misses: Buckets
    fleet: FleetView
    feed: EventBroker
    sender: WebhookDispatcher
    secret_box: SecretBox
    receipt_signer: Signer
    live: LiveServices
    rendered: RenderedTranscripts
    large_bodies: CapacityLimiter
    """Large JSON bodies are parsed one at a time, since parsing holds the interpreter lock."""
    manifest_turn: clock.Lock
    """Held while lines of a manifest are read, for the same reason."""
    stopping: clock.Event
    """Set when the process was asked to end."""

    @property
    def upload_folder(self) -> Path:
        """Where uploads are received."""
        return self.settings.home / "uploads"

    def close(self) -> None:
        """Stop the background threads and close the connections."""
        self.fleet.stop()
        self.feed.stop()
        self.sender.stop()
        self.sweeper.stop()
        self.deleter.stop()
        self.exporter.stop()
        self.signer.stop()
        self.key_cache.close()
        self.probes.close()
        self.live.signals.close()
        self.queue.close()
        self.database.close()


def open_services(settings: Settings) -> Services:
    """Open every part and start the background threads. They may answer later; `/readyz` reports which do."""
    database = Database(settings.database_url)
    objects = object_store(settings)
    queue = celery_app(settings)
    pool = queue_name(settings.pool)

    def ask_database() -> None:
        # A database without tables answers a ping but no request.
        with database.read() as tx:
            list_jobs(tx, JobFilter(), limit=1)

    probes = Probes(
        {
            "database": ask_database,
            "broker": lambda: queue_depth(queue, pool),
            "objects": objects.check,
        }
    )
    key_cache, box = KeyCache(database, settings), secret_box(settings)
    sender = WebhookDispatcher(database, settings, box)
    services = Services(
        settings=settings,
        database=database,
        objects=objects,
        queue=queue,
        sweeper=Sweeper(database, queue, settings),
        deleter=ContentDeleter(database, objects, settings),
        exporter=Exporter(database, objects, settings, box),
        signer=SourceSigner(database, settings, box),
        probes=probes,
        key_cache=key_cache,
        limits=Buckets(settings.rate_limit, settings.rate_burst),
        misses=Buckets(_GUESSES_A_SECOND, _GUESSES),
        fleet=FleetView(database, settings),
        feed=EventBroker(database, settings, lambda: key_cache.requires_key, sender.wake),
        sender=sender,
        secret_box=box,
        receipt_signer=receipt_signer(settings),
        live=live_services(settings),
        rendered=RenderedTranscripts(),
        large_bodies=CapacityLimiter(1),
        manifest_turn=clock.Lock(),
        stopping=clock.Event(),
    )
    drop_remains(services.upload_folder)
    services.sweeper.start()
    services.deleter.start()
    services.exporter.start()
    services.signer.start()
    services.key_cache.start()
    services.fleet.start()
    services.feed.start()
    services.sender.start()
    return services


def services_of(request: HTTPConnection) -> Services:
    """The process's services, for a route."""
    return cast("Services", request.app.state.services)


async def _services(request: Request) -> Services:
    # A coroutine, since FastAPI runs any other dependency in a thread for each request.
    return services_of(request)


ServicesDep = Annotated[Services, Depends(_services)]
