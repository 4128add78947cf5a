"""The object store: sources and transcripts by key, in a folder or in S3.

store     the protocol that both forms keep, and the rules for keys
folder    files below one directory
s3        a bucket, through boto3; what others send to it in parts is in `s3_receiver`
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
