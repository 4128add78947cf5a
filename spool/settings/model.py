"""Every setting of Spool in one frozen object, with its type and default.

The defaults are the embedded stack on one machine: SQLite, a folder as object store and a Redis on a Unix
socket, all under `SPOOL_HOME`. `environment` reads the variables and secret files, `validation` refuses
contradictions. Opens no connection.
"""

import json
import os
import platform
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator

from spool import clock
from spool.answering import Answering
from spool.bundled import bundled_folder
from spool.domain.fleet.routing import Requirement
from spool.domain.pricing import CLOUDS, CloudPrices, Rate, price_micros, price_of
from spool.domain.priority import Rules
from spool.domain.quotas import Quota
from spool.domain.retention import Retention
from spool.domain.work_hours import parse_hours
from spool.errors import StorageError
from spool.net.address_policy import AddressRules, normal_pattern
from spool.settings.client import ClientSettings, secrets_of
from spool.settings.redis_url import default_url
from spool.settings.secret_key import split_keys

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LEAST_KEY = 32
"""Characters of a key that encrypts."""


def _default_store() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "spool" / "models"


def _plain_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "must consist of letters, digits, '.', '_' and '-', since it is part of a queue's name"
        )
    return value


def _split(value: Any, separator: str = ",") -> Any:  # noqa: ANN401 - pydantic's raw input
    """The texts of a list, from JSON or with this separator between them."""
    if isinstance(value, str):
        value = json.loads(value) if value.lstrip().startswith("[") else value.split(separator)
    return tuple(item.strip() if isinstance(item, str) else item for item in value if str(item).strip())


def _parse_folders(value: Any) -> Any:  # noqa: ANN401
    return tuple(_resolve(Path(folder).expanduser().absolute()) for folder in _split(value, os.pathsep))


def _resolve(folder: Path) -> Path:
    """The folder without links, as far as its disk or share answers: a dead one holds whoever asks."""
    with Answering(str(folder), threaded=True) as answering:
        try:
            return answering.call(folder.resolve)
        except StorageError:
            parent = folder.parent
            return folder if parent == folder else _resolve(parent) / folder.name


def _parse_hosts(value: Any) -> Any:  # noqa: ANN401
    try:
        return tuple(map(normal_pattern, _split(value)))
    except ValueError:
        raise ValueError("has to be a list of hosts such as example.org,*.example.net") from None


def _parse_prefixes(value: Any) -> Any:  # noqa: ANN401
    prefixes = tuple(f"{prefix.rstrip('/')}/" for prefix in _split(value))
    if not all(re.match(r"s3://[a-z0-9{]|file:///", prefix) for prefix in prefixes):
        raise ValueError("has to be a list such as s3://bucket/prefix/,file:///folder/")
    return prefixes


def _parse_json(value: Any) -> Any:  # noqa: ANN401
    return json.loads(value, parse_float=Decimal) if isinstance(value, str) else value


def _parse_pairs(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return {name: str(item) if isinstance(item, (Path, float)) else item for name, item in value.items()}
    if not isinstance(value, str) or value.lstrip().startswith("{"):
        return _parse_json(value)
    pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
    if any(not name.strip() or not item.strip() for name, _, item in pairs):
        raise ValueError("has to be JSON or a list such as name=value,other=value")
    return {name.strip(): item.strip() for name, _, item in pairs}


Texts = Annotated[tuple[str, ...], BeforeValidator(_split)]
Folders = Annotated[tuple[Path, ...], BeforeValidator(_parse_folders)]
Hosts = Annotated[tuple[str, ...], BeforeValidator(_parse_hosts)]
Prefixes = Annotated[tuple[str, ...], BeforeValidator(_parse_prefixes)]
Pairs = BeforeValidator(_parse_pairs)
"""A mapping as JSON, or as `name=value,other=value`."""
Name = Annotated[str, AfterValidator(_plain_name)]
Seconds = Annotated[float, Field(gt=0)]
Device = Literal["auto", "gpu", "cpu"]
Share = Annotated[float, Field(ge=0.001, le=1000)]


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", platform.node()).strip("-.")[:100] or "worker"


class Settings(ClientSettings):
    """The settings of this process, as `load_settings` read them. Frozen; secrets are not in its repr."""

    database_url: str = Field("", repr=False)
    redis_url: str = Field("", repr=False)
    objects: str = ""
    s3_endpoint_url: str | None = None
    s3_public_endpoint_url: str | None = Field(None, pattern=r"^https?://[A-Za-z0-9.:\[\]-]+/?$")
    """Where browsers reach the S3 server. With it, players get uploaded recordings from there, by presigned
    addresses, and Spool does not verify the bytes."""
    direct_uploads: bool = True
    """Whether clients may send recordings to the S3 server in parts, past the API; only where
    `s3_public_endpoint_url` says where it is."""
    upload_days: float = Field(7.0, gt=0, le=365)
    """How long such an upload may take until a job names it; then it is dropped."""
    s3_region: str = "us-east-1"
    s3_access_key_id: SecretStr | None = None
    s3_secret_access_key: SecretStr | None = None
    s3_checksums: bool = True
    """Send boto3's CRCs and verify those of the store; off for S3-alikes that refuse them."""

    source_roots: Folders = ()
    """Folders below which `file://` sources may lie."""
    source_hosts: Hosts = ()
    """Hosts that `https://` sources may lie on (`example.org`, `*.example.org`); empty: any public one."""
    source_private_hosts: Hosts = ()
    """Hosts that may have private addresses, such as a file server of one's own."""
    output_prefixes: Prefixes = ()
    """Addresses (`s3://bucket/prefix/`, `file:///folder/`) below which transcripts may be written with the
    server's own rights; `{project}` in one stands for the job's project."""
    api_processes: int = Field(1, ge=1, le=64)
    """Processes that answer requests, all on the one port."""
    api_drain_seconds: float = Field(0.0, ge=0, le=60)
    """How long the API goes on after SIGTERM while `/healthz` answers 503, so that a proxy in front of
    several APIs sends requests to the others before this one closes its port."""
    rate_limit: float = Field(200.0, ge=0)
    """Requests a second by each key, or each address without one, to one API process; 0: no limit."""
    rate_burst: int = Field(2000, ge=1)
    """Requests at once after a pause."""
    concurrent_requests: int = Field(400, ge=1)
    """Requests that one API process has under way, event streams apart; more are refused, reads first."""
    concurrent_requests_per_key: int = Field(100, ge=1)
    """Of these, by each key, or each address without one."""
    grpc_port: int | None = Field(None, ge=1, le=65535)
    """Port of WeNet's gRPC service, on the same host; without one there is none."""
    live_open_seconds: Seconds = 5.0
    """How long a live client waits for a worker with room before it is refused."""
    upload_max_bytes: int = Field(4 * 2**30, gt=0)
    max_audio_seconds: Seconds = 24 * 3600.0
    source_max_bytes: int = Field(32 * 2**30, gt=0)
    """Bytes of a recording that is read from `file://` or fetched from `s3://`."""
    disk_floor_bytes: int = Field(256 * 2**20, ge=0)
    """Bytes of the home's disk that a worker leaves free; with fewer it takes no jobs."""
    max_clock_skew_seconds: Seconds = 600.0
    """How far a worker's clock may differ from the database's; S3 rejects signatures 15 minutes off."""
    min_qoi: float = Field(0.99, ge=0, le=1)
    """The lowest share of recordings that a model transcribes no worse than in float32, as measured by
    `spool-worker confirm --quality`; below this the worker takes no jobs. 0: no limit."""
    compute_type: Literal["auto", "float32", "int8"] = "auto"
    """Whether models multiply in 8-bit integers on a CPU that can. auto: where `spool-worker confirm
    --quality` found on this machine that the model transcribes well enough in them."""
    unwell_retry_seconds: Seconds = 60.0
    """How often an unwell worker checks whether it can return to service."""
    model_grace_seconds: Seconds = 3600.0
    """How long jobs wait for a model that no worker of their pool can load; then they fail."""
    unwell_exit: bool = False
    """Whether an unwell worker exits with code 1 instead, for its supervisor."""
    max_job_seconds: Seconds = 24 * 3600.0
    """How long workers may run one job, over all its attempts since it was submitted or retried."""

    event_days: float = Field(30.0, gt=0)
    """How long events of jobs and batches are kept."""
    event_streams: int = Field(200, ge=1)
    """Streams of events that one API process keeps open."""
    live_sessions: int = Field(64, ge=0)
    """Live sessions that one API process keeps open."""
    live_sessions_per_key: int = Field(32, ge=1)
    """Of these, by each key, or each address without one."""
    secret_key: SecretStr | None = None
    """Encrypts the secrets of webhooks in the database, 32 characters or more; several, separated by commas,
    while it is changed: the first encrypts, each decrypts. Default: `secret-key` in the home, made at first
    use."""
    receipt_key: SecretStr | None = None
    """Signs receipts, 32 characters or more; several, separated by commas: the first signs, and the public
    parts of all are shown. Default: `receipt-key` in the home, made at first use."""
    webhook_private_hosts: Hosts = ()
    """Hosts that webhooks may reach at private addresses and without TLS, such as a server of one's own."""
    webhook_disable_days: float = Field(5.0, gt=0)
    """A webhook is disabled after this long without a success."""

    models: Annotated[dict[str, str], Pairs] = Field(
        default_factory=lambda: {
            "whisper-tiny.en": "whisper-tiny.en",
            "demo-tdt": str(bundled_folder("models/demo")),
        }
    )
    """Model names that jobs may ask for: each a name of the catalogue (`spool models list`), a folder, a
    `.nemo` file or a hub id `owner/name`."""
    default_model: str = ""
    """On an API: what a job gets that names no model, until `spool models default` says otherwise. On a
    worker: what its self-test, `bench` and `confirm` run. If it is not set: `whisper-tiny.en`, or the first
    of `models`."""
    fetch_models: bool = False
    """Whether a worker takes jobs of any model of the catalogue and fetches it for the first of them."""
    model_requires: Annotated[dict[str, Requirement], Pairs] = Field(default_factory=dict)
    """What jobs of a model require of their machine: `{"x": {"backend": "metal", "memory_gb": 16}}`."""
    speech_detector: bool = True
    """Whether the speech detector listens to jobs that do not say (`speech_detector` of a job's options)."""
    language_check: bool = True
    """Whether a multilingual Whisper, if the worker has one, listens to a few places of recordings whose
    model knows one language, so that speech in another is reported."""
    model_store: Path = Field(default_factory=_default_store)
    """Where models of the catalogue are kept (`spool models`); one folder for all of a machine's workers."""
    model_store_bytes: int = Field(20 * 2**30, gt=0)
    """What the store may hold; beyond it the models not used for longest are removed."""
    pinned_models: Texts = ()
    """Models that a worker loads when it starts and keeps loaded."""
    model_memory_bytes: int | None = Field(None, gt=0)
    """Memory for the weights of loaded models. Default: a quarter of the machine's memory."""
    model_stay_seconds: float = Field(20.0, ge=0)
    """How long a model with work stays loaded while jobs of a model without room wait."""
    diarization_models: Annotated[dict[str, str], Pairs] = Field(default_factory=dict)
    """Sortformers that jobs may name to tell speakers apart, each a `.nemo` file or a name of the catalogue;
    `sortformer` here is what jobs get that ask for it."""
    language_models: Annotated[dict[str, str], Pairs] = Field(default_factory=dict)
    """Language models that jobs may ask for, each an ARPA file over the acoustic model's tokens."""
    graphs: Annotated[dict[str, str], Pairs] = Field(default_factory=dict)
    """Decoding graphs that jobs may ask for, each a file of `spool graph build`."""

    pool: Name = "cpu"
    worker_name: Name = Field(default_factory=_host_name)
    celery_remote_control: bool = False
    """Whether workers obey Celery's remote control (`celery inspect active`, Flower's buttons), which can
    also end them: only on a broker that nobody else reaches."""
    celery_events: bool = False
    """Whether workers send Celery's events, which Flower shows."""
    device: Device = "auto"
    """Where the engine computes: `gpu`, `cpu`, or `auto`, the GPU where there is one."""
    concurrency: int = Field(8, ge=1, le=256)
    """Jobs in flight in one worker; each may be up to eight short ones."""
    frame_budget: int | None = Field(None, ge=1)
    """Feature frames of 10 ms in one batch, padding included; None: as many as the machine has memory for."""
    max_batch: int | None = Field(None, ge=1)
    """Utterances in one batch; None: as the memory allows."""
    work_hours: str = ""
    """When to work, by this machine's clock (`19:00-07:00,sat,sun`); empty: always."""
    work_share: float = Field(1.0, gt=0, le=1)
    """The share of that time in which the engine may be busy."""
    live_share: float = Field(0.5, gt=0)
    """The share of the engine's time that live sessions may take together, by what they were measured to
    take; more are refused."""
    engine_slots: int = Field(32, ge=1)
    """Chunks that may wait in the engine before job threads block."""
    yield_seconds: Seconds = 600.0
    """After this long a running job returns to the queue if others wait."""
    shares: Annotated[dict[str, Share], Pairs] = Field(default_factory=dict)
    """A project's weight where projects wait for the same pool. Default: 1."""
    quotas: Annotated[dict[str, Quota], Pairs] = Field(default_factory=dict)
    """What a project may use; further jobs are held. `*`: every project without its own quota."""
    aging_seconds: Seconds = 3600.0
    """After this long a queued job may go before those of a higher priority, in one claim of ten."""

    lease_seconds: Seconds = 20.0
    heartbeat_seconds: Seconds = 5.0
    sweep_seconds: Seconds = 3.0
    hint_stale_seconds: Seconds = 30.0
    hint_window: int = Field(1000, ge=1)
    """Messages kept in one Redis queue at most; the rest wait in SQL."""
    max_crashes: int = Field(3, ge=1)

    price_per_hour: Decimal = Field(Decimal("0.10"), ge=0)
    """Price of an engine hour where the rate card names neither the worker nor its pool."""
    rate_card: Annotated[dict[str, Rate], Pairs] = Field(default_factory=dict)
    """By worker or pool: a rent, a machine that was bought, or prices by day."""
    budgets: Annotated[dict[str, Decimal], Pairs] = Field(default_factory=dict)
    """A project's budget for a UTC month: exceeding it is reported and stops nothing."""
    retention: Annotated[dict[str, Retention], Pairs] = Field(default_factory=dict)
    """How long a project's recordings and transcripts are kept; `*` for the others. Default: forever."""
    retention_sweep_seconds: Seconds = 60.0
    """How often expired recordings and transcripts are deleted."""
    cloud_prices: Annotated[CloudPrices, BeforeValidator(_parse_json)] = CLOUDS
    """Prices that a cost report is compared with."""
    currency: str = Field("USD", pattern=r"^[A-Z]{3}$")
    log_json: bool = False
    log_file: Path | None = None
    """A worker's log file; reopened after SIGUSR1."""
    otlp_endpoint: str | None = Field(None, pattern=r"^https?://\S+$", repr=False)
    """Where traces are sent as OTLP over HTTP; `/v1/traces` is added. None: OTEL_EXPORTER_OTLP_ENDPOINT, if
    set."""

    @model_validator(mode="after")
    def _first_model(self) -> "Settings":
        if not self.default_model and self.models:
            first = "whisper-tiny.en" if "whisper-tiny.en" in self.models else next(iter(self.models))
            object.__setattr__(self, "default_model", first)  # frozen for everybody else
        return self

    @model_validator(mode="before")
    @classmethod
    def _embedded_defaults(cls, values: Any) -> Any:  # noqa: ANN401 - pydantic's raw input
        if isinstance(values, dict):
            home = Path(values.get("home") or "var").expanduser().resolve()
            values = {**values, "home": home}
            values["database_url"] = values.get("database_url") or f"sqlite:///{home / 'spool.db'}"
            values["redis_url"] = values.get("redis_url") or default_url(home)
            values["objects"] = values.get("objects") or (home / "objects").as_uri()
        return values

    @field_validator("secret_key", "receipt_key")
    @classmethod
    def _long_keys(cls, value: SecretStr | None) -> SecretStr | None:
        keys = None if value is None else split_keys(value)
        if keys is not None and (not keys or min(map(len, keys)) < LEAST_KEY):
            raise ValueError(f"has to have at least {LEAST_KEY} characters")
        return value

    @field_validator("work_hours")
    @classmethod
    def _hours(cls, value: str) -> str:
        parse_hours(value)
        return value

    def price_per_hour_micros(self, worker: str | None = None, pool: str | None = None) -> int:
        """The price of an engine hour of this worker (or another) today, in millionths of the currency."""
        name, day = worker or self.worker_name, clock.now().date()
        return price_micros(price_of(name, pool or self.pool, self.rate_card, self.price_per_hour, day))

    @property
    def self_test_model(self) -> str:
        """The model that a worker's self-test runs."""
        return self.default_model if self.default_model in self.models else next(iter(self.models))

    @property
    def rules(self) -> Rules:
        """Shares, quotas and aging, for the scheduler."""
        return Rules(self.shares, self.quotas, self.aging_seconds)

    @property
    def source_addresses(self) -> AddressRules:
        """Which hosts `https://` sources may be fetched from."""
        return AddressRules(self.source_hosts, self.source_private_hosts)

    @property
    def webhook_addresses(self) -> AddressRules:
        """Which hosts webhooks may be sent to."""
        return AddressRules((), self.webhook_private_hosts)

    @property
    def own_folders(self) -> tuple[Path, ...]:
        """Folders with recordings and transcripts of every project, which no job may name as its source."""
        kept = [*(self.home / name for name in ("uploads", "tmp", "handover")), self.objects_folder]
        return tuple(folder for folder in kept if folder is not None)

    @property
    def objects_folder(self) -> Path | None:
        """The object store's folder, if it is one."""
        parts = urlsplit(self.objects)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None


SECRETS = secrets_of(Settings)
"""Settings that may also be read from the file that `SPOOL_…_FILE` names."""
