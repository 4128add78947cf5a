"""Live sessions over WebSocket: Deepgram's protocol, WeNet's, and OpenAI's Realtime transcription.

Invalid requests are refused before the WebSocket is accepted, with the same problem documents as other
routes. OpenAI's clients configure a session only after the handshake, so they are refused with an `error`
event and a close code.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Annotated

import structlog
from fastapi import Depends, WebSocket
from starlette.websockets import WebSocketDisconnect

from api.auth.authentication import authenticate_websocket, subprotocol_of
from api.auth.principal import Principal
from api.live.deepgram import DeepgramProtocol
from api.live.limits import IDLE_SECONDS, SEND_SECONDS, SessionEnd
from api.live.opening import open_session, read_query
from api.live.protocol import Protocol
from api.live.realtime import RealtimeProtocol, error_event, query_of
from api.live.resuming import PARAMETER, read_resumption, resume_session
from api.live.session import Session
from api.live.wenet import WenetProtocol
from api.problems import Problem
from api.services import Services, services_of
from api.submission.openai_models import ITS_MODELS
from spool.domain.jobs import Job
from spool.errors import SpoolError

log = structlog.get_logger(__name__)

_CREATED = {"type": "session.created", "event_id": "event_created", "session": {"type": "transcription"}}
LiveCaller = Annotated[Principal, Depends(authenticate_websocket)]
MakeProtocol = Callable[[Job, dict[str, bool]], Protocol]


async def listen(websocket: WebSocket, caller: LiveCaller) -> None:
    """A session that speaks Deepgram's protocol."""

    def make_protocol(job: Job, switches: dict[str, bool]) -> Protocol:
        return DeepgramProtocol(
            job,
            interim=switches["interim_results"],
            vad_events=switches["vad_events"],
            acknowledges=switches["acknowledge"],
        )

    await _serve(websocket, caller, make_protocol)


async def listen_wenet(websocket: WebSocket, caller: LiveCaller) -> None:
    """A session that speaks WeNet's protocol."""
    await _serve(websocket, caller, lambda _job, _switches: WenetProtocol())


async def _serve(websocket: WebSocket, caller: Principal, make_protocol: MakeProtocol) -> None:
    services = services_of(websocket)
    if PARAMETER in websocket.query_params:
        await _resume(services, websocket, caller, make_protocol)
        return
    asked, switches = read_query(services, websocket.query_params.multi_items())
    with services.live.seats.seat(caller.key_id or caller.name, asked.options.model):
        job = await open_session(services, caller, asked)
        await websocket.accept(subprotocol_of(websocket), [(b"dg-request-id", job.id.encode())])
        log.info("live session opened", **job.ids, project=job.project, key=caller.name)
        await Session(services, websocket, job, make_protocol(job, switches)).run()


async def _resume(
    services: Services, websocket: WebSocket, caller: Principal, make_protocol: MakeProtocol
) -> None:
    """Continue an open session on a new connection."""
    asked, switches = read_resumption(websocket.query_params.multi_items())
    with services.live.seats.seat_again(caller.key_id or caller.name):
        job, place = await resume_session(services, caller, asked)
        await websocket.accept(subprotocol_of(websocket), [(b"dg-request-id", job.id.encode())])
        log.info("live session resumed", **job.ids, project=job.project, key=caller.name, part=place.part)
        await Session(services, websocket, job, make_protocol(job, switches), place).run()


async def realtime(websocket: WebSocket, caller: LiveCaller) -> None:
    """A session that speaks OpenAI's Realtime protocol."""
    services = services_of(websocket)
    pairs = [pair for pair in websocket.query_params.multi_items() if pair[0] not in {"intent", "model"}]
    named = _own_model(services, websocket.query_params.get("model"))
    if (intent := websocket.query_params.get("intent", "transcription")) != "transcription":
        raise Problem(422, "invalid_request", f"intent: {intent[:60]} is not supported; use transcription")
    with services.live.seats.seat(caller.key_id or caller.name, named or services.fleet.default()):
        await websocket.accept(subprotocol_of(websocket))
        try:
            job = await _open(services, websocket, caller, pairs, named)
        except WebSocketDisconnect:
            return
        except SessionEnd as refusal:
            await _refuse(websocket, refusal)
            return
        protocol = RealtimeProtocol(job)
        for event in protocol.report_created():
            await websocket.send_text(json.dumps(event))
        log.info("live session opened", **job.ids, project=job.project, key=caller.name)
        await Session(services, websocket, job, protocol).run()


def _own_model(services: Services, model: str | None) -> str | None:
    """The name of a model; None for a name of OpenAI's that stands for the default model."""
    return None if model in ITS_MODELS - services.settings.models.keys() else model


async def _open(
    services: Services,
    websocket: WebSocket,
    caller: Principal,
    pairs: list[tuple[str, str]],
    model: str | None,
) -> Job:
    """The job of the session that the client asks for first. Raises SessionEnd if it cannot be opened."""
    await websocket.send_text(json.dumps(_CREATED))
    try:
        text = await asyncio.wait_for(websocket.receive_text(), IDLE_SECONDS)
    except TimeoutError:
        raise SessionEnd(1011, f"No session.update for {IDLE_SECONDS:g} s.") from None
    except KeyError:
        raise SessionEnd(1003, "Send session.update before any audio.") from None
    query = query_of(text, model)
    query = [(name, value) for name, value in query if name != "model" or _own_model(services, value)]
    try:
        asked, _ = read_query(services, pairs + query)
        return await open_session(services, caller, asked)
    except Problem as problem:
        raise SessionEnd(1013 if problem.status == 503 else 1008, problem.detail) from None
    except SpoolError as error:
        raise SessionEnd(1008, error.message) from None


async def _refuse(websocket: WebSocket, refusal: SessionEnd) -> None:
    with contextlib.suppress(Exception):  # the client may have disconnected
        await websocket.send_text(json.dumps(error_event(refusal.code, refusal.sentence)))
        await asyncio.wait_for(websocket.close(refusal.code, refusal.reason), SEND_SECONDS)
