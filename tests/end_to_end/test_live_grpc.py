"""WeNet's gRPC service through all of Spool, as grpcio's own client calls it."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from shutil import copy
from typing import Any
from urllib.parse import urlencode

import grpc
import pytest

import migrations
from api.live.grpc.messages import METHOD, SERVICE, Request, Response
from ops.testbed.live.fleet import GOLDEN, QUERY, TOKEN, LiveFleet, pcm, pieces, words_of
from ops.testbed.processes import REAL
from ops.testbed.waiting import DEADLINE, until
from spool.broker import EmbeddedRedis
from spool.domain import JobState


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, redis_server: EmbeddedRedis) -> Iterator[LiveFleet]:
    home = tmp_path_factory.mktemp("live")
    url = f"sqlite:///{home / 'spool.db'}"
    migrations.upgrade(url)
    copy(GOLDEN / "model.nemo", home / "model.nemo")
    with closing(LiveFleet(home, url, redis_server.url, {"stream": str(home / "model.nemo")})) as fleet:
        fleet.serve()
        fleet.start(*REAL)
        yield fleet


def start(nbest: int = 1) -> Any:
    """The first request of a gRPC call."""
    return Request(decode_config={"nbest_config": nbest, "continuous_decoding_config": True})


def recognize(fleet: LiveFleet, requests: Iterable[Any], key: str = TOKEN, **query: str) -> Any:
    """A gRPC call."""
    channel = grpc.insecure_channel(f"127.0.0.1:{fleet.grpc_port}")
    method = channel.stream_stream(
        f"/{SERVICE}/{METHOD}",
        request_serializer=Request.SerializeToString,
        response_deserializer=Response.FromString,
    )
    metadata = [("authorization", f"Bearer {key}"), ("spool-query", urlencode({**QUERY, **query}))]
    return method(iter(requests), metadata=metadata, timeout=DEADLINE)


def test_wenets_grpc_clients_are_understood(fleet: LiveFleet) -> None:
    call = recognize(fleet, [start(), *(Request(audio_data=piece) for piece in pieces(pcm(1)))], name="grpc")
    messages = list(call)
    job_id = dict(call.initial_metadata())["dg-request-id"]
    kinds = [Response.Type.Name(message.type) for message in messages]
    assert (kinds[0], kinds[-1]) == ("server_ready", "speech_end")
    assert "partial_result" in kinds
    spoken = [
        best
        for kind, each in zip(kinds, messages, strict=True)
        if kind == "final_result"
        for best in each.nbest
    ]
    words = [piece.word for best in spoken for piece in best.wordpieces]
    assert words == words_of(fleet, job_id) != []
    assert [best.sentence for best in spoken] == [
        " ".join(p.word for p in best.wordpieces) for best in spoken
    ]
    spans = [(piece.start, piece.end) for best in spoken for piece in best.wordpieces]
    assert all(0 <= start <= end for start, end in spans)
    assert fleet.job(job_id).name == "grpc.wav"


@pytest.mark.parametrize(
    ("requests", "asked", "status", "sentence"),
    [
        ([Request(audio_data=b"\0" * 320)], {}, grpc.StatusCode.INVALID_ARGUMENT, "before any audio"),
        (
            [start(), Request(audio_data=b"\0")],
            {},
            grpc.StatusCode.INVALID_ARGUMENT,
            "whole number of samples",
        ),
        ([start(2)], {}, grpc.StatusCode.INVALID_ARGUMENT, "one hypothesis"),
        ([start()], {"model": "nobody"}, grpc.StatusCode.INVALID_ARGUMENT, "no model 'nobody'"),
        (
            [start()],
            {"key": "spool_wrong"},
            grpc.StatusCode.UNAUTHENTICATED,
            "The API key is invalid",
        ),
    ],
)
def test_a_grpc_call_that_cannot_be_is_refused_with_a_sentence(
    fleet: LiveFleet, requests: list[Any], asked: dict[str, str], status: grpc.StatusCode, sentence: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(recognize(fleet, requests, **asked))
    assert (caught.value.code(), sentence in caught.value.details()) == (status, True), caught.value.details()


def test_a_grpc_client_that_vanishes_leaves_its_record(fleet: LiveFleet) -> None:
    stays = threading.Event()

    def requests() -> Iterator[Any]:
        yield start()
        for piece in pieces(pcm(1)):
            yield Request(audio_data=piece)
        stays.wait(DEADLINE)

    call = recognize(fleet, requests())
    job_id = dict(call.initial_metadata())["dg-request-id"]
    until(lambda: fleet.chunks(job_id), "a final")
    call.cancel()
    stays.set()
    until(lambda: fleet.ended([job_id]), "the session's job")
    assert fleet.job(job_id).state is JobState.DONE
