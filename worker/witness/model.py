"""The fingerprint of what the witness finds. No MLX."""

import hashlib

VERSION = 1
"""Raised with every change after which findings may differ."""


def witness_mark(digest: str, *inputs: str) -> str:
    """The fingerprint of what a model of this digest (`ModelInfo.digest`) finds about the inputs."""
    return hashlib.sha256("\n".join([f"witness {VERSION}", digest, *inputs]).encode()).hexdigest()
