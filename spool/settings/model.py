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
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from spool.domain.fleet.routing import Requirement
from spool.domain.pricing import CLOUDS, CloudPrices, Rate, price_micros, price_of
from spool.domain.priority import Rules
from spool.domain.quotas import Quota
from spool.domain.retention import Retention
from spool.domain.work_hours import parse_hours
from spool.net.address_policy import AddressRules, normal_pattern
from spool.settings.redis_url import default_url

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
PREFIX = "SPOOL_"
SECRETS = (
    "api_token",
    "api_key",
    "s3_access_key_id",
    "s3_secret_access_key",
    "database_url",
    "redis_url",
    "secret_key",
)
"""Settings that may also be read from the file that `SPOOL_…_FILE` names."""
LEAST_KEY = 32
"""Characters of a key that encrypts."""
_DEMO_MODEL = Path(__file__).resolve().parents[2] / "models" / "demo"


def _default_store() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "spool" / "models"


def _plain_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "must consist of letters, digits, '.', '_' and '-', since it is part of a queue's name"
        )
    return value


Name = Annotated[str, AfterValidator(_plain_name)]
Seconds = Annotated[float, Field(gt=0)]
Device = Literal["auto", "gpu", "cpu"]
Share = Annotated[float, Field(ge=0.001, le=1000)]


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", platform.node()).strip("-.")[:100] or "worker"


class Settings(BaseModel):
    """The settings of this process, as `load_settings` read them. Frozen; secrets are not in its repr."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    home: Path = Path("var")
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

    source_roots: tuple[Path, ...] = ()
    """Folders below which `file://` sources may lie."""
    source_hosts: tuple[str, ...] = ()
    """Hosts that `https://` sources may lie on (`example.org`, `*.example.org`); empty: any public one."""
    source_private_hosts: tuple[str, ...] = ()
    """Hosts that may have private addresses, such as a file server of one's own."""
    output_prefixes: tuple[str, ...] = ()
    """Addresses (`s3://bucket/prefix/`, `file:///folder/`) below which transcripts may be written with the
    server's own rights; `{project}` in one stands for the job's project."""
    api_host: str = "127.0.0.1"
    api_port: int = Field(8700, ge=0, le=65535)
    api_processes: int = Field(1, ge=1, le=64)
    """Processes that answer requests, all on the one port."""
    api_drain_seconds: float = Field(0.0, ge=0, le=60)
    """How long the API goes on after SIGTERM while `/healthz` answers 503, so that a proxy in front of
    several APIs sends requests to the others before this one closes its port."""
    api_token: SecretStr | None = None
    """The operator's token, with every right; other callers have keys (`spool keys`)."""
    api_key: SecretStr | None = None
    """The key that the `spool` command sends."""
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
    """The share of recordings that a model must hear no worse than in float32, where `spool-worker confirm
    --quality` has measured it; with less the worker takes no jobs. 0: any."""
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
    webhook_private_hosts: tuple[str, ...] = ()
    """Hosts that webhooks may reach at private addresses and without TLS, such as a server of one's own."""
    webhook_disable_days: float = Field(5.0, gt=0)
    """A webhook is disabled after this long without a success."""

    models: dict[str, str] = Field(
        default_factory=lambda: {"whisper-tiny.en": "whisper-tiny.en", "demo-tdt": str(_DEMO_MODEL)}
    )
    """Model names that jobs may ask for: each a name of the catalogue (`spool models list`), a folder, a
    `.nemo` file or a hub id `owner/name`."""
    default_model: str = ""
    """On an API: what a job gets that names no model, until `spool models default` says otherwise. On a
    worker: what its self-test, `bench` and `confirm` run. If it is not set: `whisper-tiny.en`, or the first
    of `models`."""
    fetch_models: bool = False
    """Whether a worker takes jobs of any model of the catalogue and fetches it for the first of them."""
    model_requires: dict[str, Requirement] = Field(default_factory=dict)
    """What jobs of a model require of their machine: `{"x": {"backend": "metal", "memory_gb": 16}}`."""
    speech_detector: bool = True
    """Whether the speech detector listens to jobs that do not say (`speech_detector` of a job's options)."""
    model_store: Path = Field(default_factory=_default_store)
    """Where models of the catalogue are kept (`spool models`); one folder for all of a machine's workers."""
    model_store_bytes: int = Field(20 * 2**30, gt=0)
    """What the store may hold; beyond it the models not used for longest are removed."""
    pinned_models: tuple[str, ...] = ()
    """Models that a worker loads when it starts and keeps loaded."""
    model_memory_bytes: int | None = Field(None, gt=0)
    """Memory for the weights of loaded models. Default: a quarter of the machine's memory."""
    model_stay_seconds: float = Field(20.0, ge=0)
    """How long a model with work stays loaded while jobs of a model without room wait."""
    diarization_models: dict[str, str] = Field(default_factory=dict)
    """Sortformers that jobs may name to tell speakers apart, each a `.nemo` file or a name of the catalogue;
    `sortformer` here is what jobs get that ask for it."""
    language_models: dict[str, str] = Field(default_factory=dict)
    """Language models that jobs may ask for, each an ARPA file over the acoustic model's tokens."""
    graphs: dict[str, str] = Field(default_factory=dict)
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
    shares: dict[str, Share] = Field(default_factory=dict)
    """A project's weight where projects wait for the same pool. Default: 1."""
    quotas: dict[str, Quota] = Field(default_factory=dict)
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
    rate_card: dict[str, Rate] = Field(default_factory=dict)
    """By worker or pool: a rent, a machine that was bought, or prices by day."""
    budgets: dict[str, Decimal] = Field(default_factory=dict)
    """A project's budget for a UTC month: exceeding it is reported and stops nothing."""
    retention: dict[str, Retention] = Field(default_factory=dict)
    """How long a project's recordings and transcripts are kept; `*` for the others. Default: forever."""
    retention_sweep_seconds: Seconds = 60.0
    """How often expired recordings and transcripts are deleted."""
    cloud_prices: CloudPrices = CLOUDS
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

    @field_validator("source_roots", mode="before")
    @classmethod
    def _paths(cls, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            value = json.loads(value) if value.startswith("[") else [p for p in value.split(os.pathsep) if p]
        return tuple(Path(path).expanduser().resolve() for path in value)

    @field_validator("output_prefixes", mode="before")
    @classmethod
    def _prefixes(cls, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            value = json.loads(value) if value.startswith("[") else value.split(",")
        prefixes = tuple(f"{prefix.strip().rstrip('/')}/" for prefix in value if prefix.strip())
        if not all(re.match(r"s3://[a-z0-9{]|file:///", prefix) for prefix in prefixes):
            raise ValueError("has to be a list such as s3://bucket/prefix/,file:///folder/")
        return prefixes

    @field_validator("cloud_prices", mode="before")
    @classmethod
    def _json(cls, value: Any) -> Any:  # noqa: ANN401
        return json.loads(value, parse_float=Decimal) if isinstance(value, str) else value

    @field_validator("source_hosts", "source_private_hosts", "webhook_private_hosts", mode="before")
    @classmethod
    def _host_patterns(cls, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            value = json.loads(value) if value.startswith("[") else value.split(",")
        try:
            return tuple(normal_pattern(pattern) for pattern in value if pattern.strip())
        except ValueError:
            raise ValueError("has to be a list of hosts such as example.org,*.example.net") from None

    @field_validator("secret_key")
    @classmethod
    def _long_keys(cls, value: SecretStr | None) -> SecretStr | None:
        keys = None if value is None else value.get_secret_value().replace(",", " ").split()
        if keys is not None and (not keys or min(map(len, keys)) < LEAST_KEY):
            raise ValueError(f"has to have at least {LEAST_KEY} characters")
        return value

    @field_validator("work_hours")
    @classmethod
    def _hours(cls, value: str) -> str:
        parse_hours(value)
        return value

    @field_validator("pinned_models", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:  # noqa: ANN401
        return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value

    @field_validator(
        "models",
        "diarization_models",
        "language_models",
        "graphs",
        "model_requires",
        "rate_card",
        "budgets",
        "shares",
        "quotas",
        "retention",
        mode="before",
    )
    @classmethod
    def _pairs(cls, value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, str):
            return (
                {name: str(item) if isinstance(item, (Path, float)) else item for name, item in value.items()}
                if isinstance(value, Mapping)
                else value
            )
        if value.lstrip().startswith("{"):
            return json.loads(value, parse_float=Decimal)
        pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
        if any(not name.strip() or not item.strip() for name, _, item in pairs):
            raise ValueError("has to be JSON or a list such as name=value,other=value")
        return {name.strip(): item.strip() for name, _, item in pairs}

    def price_per_hour_micros(self, worker: str | None = None, pool: str | None = None) -> int:
        """The price of an engine hour of this worker (or another) today, in millionths of the currency."""
        name, day = worker or self.worker_name, datetime.now(UTC).date()
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
        kept = [self.home / "uploads", self.home / "tmp", self.objects_folder]
        return tuple(folder for folder in kept if folder is not None)

    @property
    def objects_folder(self) -> Path | None:
        """The object store's folder, if it is one."""
        parts = urlsplit(self.objects)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None
