"""Checks that the running stack does jobs, serves metrics and sends alerts. Raises SystemExit otherwise."""

import json
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import SimpleQueue

from ops.images.dockerfile import Image, command_in

HERE = Path.cwd()
SECONDS = 120.0
SAMPLE = "samples/demo-tdt/digits/string-1.flac"
WEBHOOK_PORT = 9180  # where the person listens whom Alertmanager tells


def step(text: str) -> None:
    """Say what has come to pass."""
    print(f"=== {text}", flush=True)


def check_jobs(root: Path, image: Image, token: str) -> None:
    """A sample in, its words out, by the client in the API's image and the key of the file."""
    sample = root / "var/lib/spool/sample.flac"
    sample.write_bytes((HERE / SAMPLE).read_bytes())
    base = {"SPOOL_API_KEY": token}

    def ask(*words: str) -> str:
        command = command_in(root, image, ["spool", *words], **base)
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    answer = ask("submit", "/var/lib/spool/sample.flac", "--wait", "--json")
    jobs = json.loads(answer)
    job = jobs[0] if isinstance(jobs, list) else jobs
    step(f"job: {job.get('id')} {job.get('state')}")
    words = ask("transcript", job["id"], "--format", "txt").strip()
    expected = next(
        line["text"]
        for line in map(json.loads, (HERE / "samples/demo-tdt/manifest.jsonl").read_text().splitlines())
        if SAMPLE.endswith(line["file"])
    )
    step(f"transcript: {words!r}; the sample's words are {expected!r}")
    if not words:
        raise SystemExit("no words came back")


def check_scraped() -> None:
    """Prometheus reads the API with the key of the file, and the alerts are loaded."""
    deadline = time.monotonic() + SECONDS
    while True:
        with urllib.request.urlopen("http://127.0.0.1:9090/api/v1/targets") as answer:
            targets = json.load(answer)["data"]["activeTargets"]
        if all(target["health"] == "up" for target in targets):
            break
        if time.monotonic() > deadline:
            raise SystemExit(f"Prometheus cannot read: {targets}")
        time.sleep(1)
    with urllib.request.urlopen("http://127.0.0.1:9090/api/v1/rules") as answer:
        rules = [rule["name"] for group in json.load(answer)["data"]["groups"] for rule in group["rules"]]
    step(f"prometheus reads {[target['scrapeUrl'] for target in targets]}; rules: {', '.join(rules)}")


def check_webhook() -> None:
    """Prometheus knows Alertmanager, and a person is told of an alert at the address in the secret."""
    with urllib.request.urlopen("http://127.0.0.1:9090/api/v1/alertmanagers") as answer:
        known = json.load(answer)["data"]["activeAlertmanagers"]
    received: SimpleQueue[str] = SimpleQueue()

    class Person(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", WEBHOOK_PORT), Person) as person:
        threading.Thread(target=person.serve_forever, daemon=True).start()
        alert = [{"labels": {"alertname": "Tried"}, "annotations": {"summary": "It is tried."}}]
        request = urllib.request.Request(
            "http://127.0.0.1:9093/api/v2/alerts",
            json.dumps(alert).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()
        message = received.get(timeout=SECONDS)
        person.shutdown()
    if "It is tried." not in message or not known:
        raise SystemExit(f"told {message!r}; Prometheus knows {known}")
    step(f"prometheus knows {[each['url'] for each in known]}; a person was told: {message[:200]}")
