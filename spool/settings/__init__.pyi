from .client import ClientSettings as ClientSettings, load_client_settings as load_client_settings
from .environment import load_settings as load_settings
from .home import (
    keep_private as keep_private,
    make_private as make_private,
    make_private_file as make_private_file,
)
from .model import Device as Device, SECRETS as SECRETS, Settings as Settings
from .redis_url import (
    SOCKET_PATH_BYTES as SOCKET_PATH_BYTES,
    default_url as default_url,
    socket_path as socket_path,
)
from .secret_key import SecretBox as SecretBox, SecretUnreadable as SecretUnreadable, secret_box as secret_box
from .validation import (
    FRAME_BUDGET as FRAME_BUDGET,
    LONGEST_CHUNK_FRAMES as LONGEST_CHUNK_FRAMES,
    MAX_BATCH as MAX_BATCH,
    unknown_variables as unknown_variables,
)
