"""The examples of the OpenAPI description are answers of the app: `tests.api.openapi.story` plays them again.

After a change of requests or answers, write them anew: run this file with SPOOL_WRITE_EXAMPLES=1.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

import api.openapi
from ops.testbed.running_api import Live
from ops.testbed.s3 import S3Server
from spool.ids import new_id
from spool.settings import Settings
from tests.api.openapi.story import SOUND, Story, steady, tell
from tests.live.past_the_api import past_the_api

pytestmark = pytest.mark.integration
FILE = Path(api.openapi.__file__).with_name("examples.json")


def refuse_other(known: Any, told: Any, where: str = "") -> None:
    """Raise AssertionError unless both have the same fields, with values of the same types where both have
    any: what a background thread does meanwhile differs from run to run."""
    if isinstance(known, dict) and isinstance(told, dict):
        assert known.keys() == told.keys(), where
        for key in known:
            refuse_other(known[key], told[key], f"{where}/{key}")
    elif isinstance(known, list) and isinstance(told, list):
        for pair in zip(known[:1], told[:1], strict=False):
            refuse_other(*pair, f"{where}[]")
    elif known is not None and told is not None:
        numbers = isinstance(known, int | float) and isinstance(told, int | float)
        assert numbers or type(known) is type(told), where


def test_the_examples_are_what_the_app_answers(
    settings: Settings, s3_server: S3Server, start_api: Callable[[Settings], Live], tmp_path: Path
) -> None:
    store = new_id("in").lower().replace("_", "-")
    client = s3_server.client()
    for bucket in (store, "archive"):
        client.create_bucket(Bucket=bucket)
    for number in (42, 43, 44):
        client.put_object(Bucket="archive", Key=f"1974/reel-{number:04}.flac", Body=SOUND)
    client.put_object(Bucket="archive", Key="1974/notes.pdf", Body=b"%PDF-1.7")
    settings = past_the_api(settings, s3_server, f"s3://{store}/spool", s3_server.endpoint)
    live = start_api(settings.model_copy(update={"secret_key": SecretStr("k" * 44)}))
    live.services.deleter.stop()  # moto dates every upload to 2010, so that a young one would be a stray
    with httpx.Client(base_url=live.url, timeout=60) as http:
        story = Story(live, http)
        tell(story)
    broken = start_api(settings.model_copy(update={"redis_url": "redis://127.0.0.1:9/0"}))
    with httpx.Client(base_url=broken.url, timeout=60) as http:
        ending = Story(broken, http, story.examples)
        ending.get("/readyz")
        broken.services.stopping.set()
        ending.get("/healthz")
    replaced = {s3_server.endpoint: "https://s3.example.org", store: "spool", live.url: "", str(tmp_path): ""}
    told = steady(story.examples, replaced)
    if os.environ.get("SPOOL_WRITE_EXAMPLES"):
        FILE.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    refuse_other(json.loads(FILE.read_text(encoding="utf-8")), told)
