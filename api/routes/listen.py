"""Live sessions over WebSocket: Deepgram's protocol, and WeNet's.

What cannot be done is refused before the WebSocket is accepted, with the problem document of every route.
"""

from collections.abc import Callable
from typing import Annotated

import structlog
from fastapi import Depends, WebSocket

from api.auth.authentication import let_in_live, subprotocol_of
from api.auth.principal import Principal
from api.live.deepgram import DeepgramProtocol
from api.live.opening import open_session, read_query
from api.live.protocol import Protocol
from api.live.session import Session
from api.live.wenet import WenetProtocol
from api.services import services_of
from spool.domain.jobs import Job

log = structlog.get_logger(__name__)

LiveCaller = Annotated[Principal, Depends(let_in_live)]
Speaks = Callable[[Job, dict[str, bool]], Protocol]


async def listen(websocket: WebSocket, caller: LiveCaller) -> None:
    """A session that speaks Deepgram's protocol."""

    def speaks(job: Job, switches: dict[str, bool]) -> Protocol:
        return DeepgramProtocol(
            job,
            interim=switches["interim_results"],
            vad_events=switches["vad_events"],
            acknowledges=switches["acknowledge"],
        )

    await _serve(websocket, caller, speaks)


async def listen_wenet(websocket: WebSocket, caller: LiveCaller) -> None:
    """A session that speaks WeNet's."""
    await _serve(websocket, caller, lambda _job, _switches: WenetProtocol())


async def _serve(websocket: WebSocket, caller: Principal, speaks: Speaks) -> None:
    services = services_of(websocket)
    asked, switches = read_query(services, websocket.query_params.multi_items())
    with services.live.seats.seat(caller.key_id or caller.name, asked.options.model):
        job = await open_session(services, caller, asked)
        await websocket.accept(subprotocol_of(websocket), [(b"dg-request-id", job.id.encode())])
        log.info("live session opened", **job.ids, project=job.project, key=caller.name)
        await Session(services, websocket, job, speaks(job, switches)).run()
