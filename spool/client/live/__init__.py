"""A live session from Python: `LiveStream`, which survives a lost connection."""

from spool.client.live.stream import LiveStream

__all__ = ["LiveStream"]
