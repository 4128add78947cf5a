"""A live session from Python: `LiveStream`, which outlives its connection."""

from spool.client.live.stream import LiveStream

__all__ = ["LiveStream"]
