from .fetch import Sources as Sources
from .links import ANSWER_SECONDS as ANSWER_SECONDS, SignedLink as SignedLink
from .pace import PaceLimits as PaceLimits
