"""People who upload recordings in parts, past the API: whatever they have to repeat, each becomes one job."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from api.auth.principal import OPERATOR
from api.services import Services
from api.submission.direct import complete_upload, list_parts, open_upload
from api.submission.jobs import create_from_source
from spool.errors import SpoolError, StorageError
from spool.schemas.jobs import JobRequest
from spool.schemas.uploads import NewUploadRequest
from spool.tables.uploads import SCHEME
from tests.simulation.database import Observer
from tests.simulation.fleet import Fleet
from tests.simulation.load import LENGTHS, number_bytes, recording
from tests.simulation.objects import Objects, SimulatedReceiver
from tests.simulation.timeline import Timeline

T = TypeVar("T")

PATIENCE_S = 40.0
"""After so long without an answer a request is repeated, to whichever API is there."""
PAUSE_S = 10.0
LEAVES = 0.1
"""How many people never complete what they began."""


class Uploads:
    """Those who upload, and what they were promised."""

    def __init__(self, fleet: Fleet, objects: Objects, timeline: Timeline, uploads_an_hour: float) -> None:
        self._fleet, self._timeline, self._uploads_an_hour = fleet, timeline, uploads_an_hour
        self._scheduler, self._random = fleet.scheduler, fleet.scheduler.random
        self._objects, self._receiver = objects, SimulatedReceiver(objects)
        self._sent: dict[str, bytes] = {}
        """By name, what became a job as its sender was told."""
        self.going_on = 0

    def run(self) -> None:
        """Begin uploads until there is to be no more load."""
        number = 0
        while True:
            self._scheduler.sleep(self._random.expovariate(self._uploads_an_hour / 3600))
            if self._fleet.calm:
                return
            number += 1
            self._scheduler.spawn(self._fleet.outside, f"upload-{number}", partial(self._upload, number))

    def _upload(self, number: int) -> None:
        """One person: begin, send what is missing, complete, and name it in a job."""
        name = f"upload-{number}.wav"
        data = recording("good", self._random.choice(LENGTHS[:4]), 15)[:-2] + number_bytes(number)
        new = NewUploadRequest(name=name, bytes=len(data), project="oral")
        self.going_on += 1
        try:
            self._go_through(name, data, new)
        except SpoolError as error:
            self._timeline.violate("a complete upload becomes a job", f"{name} was refused: {error.message}")
        self.going_on -= 1

    def _go_through(self, name: str, data: bytes, new: NewUploadRequest) -> None:
        upload, _ = self._ask(lambda services: open_upload(services, OPERATOR, new))
        if self._random.random() > LEAVES:
            self._send(upload.id, upload.multipart_id, data)
            self._ask(lambda services: complete_upload(services, OPERATOR, upload.id))
            options = {"model": "simulated", "speech_detector": False}
            body = JobRequest.model_validate({"source": SCHEME + upload.id, "options": options})
            self._ask(lambda services: create_from_source(services, OPERATOR, body, upload.id))
            self._sent[name] = data
            self._timeline.note(f"{name} is a job, as its sender was told")

    def _send(self, upload_id: str, multipart_id: str, data: bytes) -> None:
        page = self._ask(lambda services: list_parts(services, OPERATOR, upload_id, 1, 1000))
        for part in page.items:
            if not part.received:
                self._put(multipart_id, part.number, data[part.offset : part.offset + part.bytes])

    def _put(self, multipart_id: str, number: int, data: bytes) -> None:
        while True:
            try:
                self._receiver.put(multipart_id, number, data)
            except StorageError:
                self._scheduler.sleep(PAUSE_S)
            else:
                return

    def _ask(self, request: Callable[[Services], T]) -> T:
        """The answer of some API, asked until there is one. Raises what it refuses with."""
        while True:
            answers: list[T | SpoolError] = []
            api = self._fleet.choose_api()
            if api is not None:
                self._scheduler.spawn(
                    api.process, "request", partial(self._serve, api.services, request, answers)
                )
                until = self._scheduler.now_ns + PATIENCE_S * 1e9
                while not answers and not api.process.dead and self._scheduler.now_ns < until:
                    self._scheduler.sleep(0.5)
            if answers and isinstance(answers[0], SpoolError):
                raise answers[0]
            if answers:
                return cast("T", answers[0])
            self._scheduler.sleep(PAUSE_S)

    @staticmethod
    def _serve(services: Services, request: Callable[[Services], T], answers: list[T | SpoolError]) -> None:
        try:
            answers.append(request(services))
        except StorageError:
            return
        except SpoolError as error:
            answers.append(error)

    def check(self, observer: Observer) -> None:
        """Whether each upload became one job, of the bytes that were sent."""
        if self.going_on:
            self._timeline.violate(
                "a complete upload becomes a job", f"{self.going_on} senders wait for answers"
            )
        for name, data in self._sent.items():
            keys = observer.rows("SELECT source_uri FROM jobs WHERE name = ?", name)
            found = [self._objects.stored[key][0] for (key,) in keys if key in self._objects.stored]
            if len(keys) != 1 or found != [data]:
                what = f"{name} became {len(keys)} jobs, and {len(found)} of their recordings are there"
                self._timeline.violate("a complete upload becomes a job", what)
