from .folder import walk as walk
from .probe import (
    EMPTY as EMPTY,
    HIDDEN as HIDDEN,
    NOT_AUDIO as NOT_AUDIO,
    PROBE_BYTES as PROBE_BYTES,
    has_recordings_name as has_recordings_name,
    is_audio as is_audio,
    reason_to_skip as reason_to_skip,
)
