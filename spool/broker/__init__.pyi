from .celery_app import TASK as TASK, queue_depth as queue_depth, send_hint as send_hint
from .embedded_redis import (
    EmbeddedRedis as EmbeddedRedis,
    find_server as find_server,
    temporary_home as temporary_home,
)
from .live_signals import LiveSignals as LiveSignals, words_channel as words_channel
