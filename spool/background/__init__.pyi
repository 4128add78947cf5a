from .content_deleter import (
    ContentDeleter as ContentDeleter,
    delete_content as delete_content,
    delete_once as delete_once,
)
from .exporter import Exporter as Exporter
from .outbox_relay import relay_once as relay_once
from .source_signer import SourceSigner as SourceSigner, VALID_SECONDS as VALID_SECONDS
from .sweeper import (
    Contact as Contact,
    Sweeper as Sweeper,
    sweep_once as sweep_once,
    update_deadlines as update_deadlines,
)
from .upload_sweeper import (
    STRAY_SECONDS as STRAY_SECONDS,
    find_strays as find_strays,
    sweep_uploads as sweep_uploads,
)
