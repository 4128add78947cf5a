from .base import (
    NewObject as NewObject,
    ObjectInfo as ObjectInfo,
    ObjectStore as ObjectStore,
    Receiver as Receiver,
    check_key as check_key,
)
from .integrity import (
    HASH_BLOCK as HASH_BLOCK,
    hash_file as hash_file,
    read_range as read_range,
    read_verified as read_verified,
    verify_blocks as verify_blocks,
)
from .local import FolderStore as FolderStore
from .opening import object_store as object_store, s3_store as s3_store
from .s3 import S3Store as S3Store
from .s3_client import S3Options as S3Options
from .s3_receiver import S3Receiver as S3Receiver
