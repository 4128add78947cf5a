from .aio import AsyncSpool as AsyncSpool
from .errors import (
    ClientError as ClientError,
    Conflict as Conflict,
    Deleted as Deleted,
    Forbidden as Forbidden,
    InvalidRequest as InvalidRequest,
    NotFound as NotFound,
    RateLimited as RateLimited,
    Refused as Refused,
    ServerFailed as ServerFailed,
    TimedOut as TimedOut,
    TooLarge as TooLarge,
    Unauthorized as Unauthorized,
    Unreachable as Unreachable,
)
from .exchange import Retries as Retries
from .sync import Spool as Spool
