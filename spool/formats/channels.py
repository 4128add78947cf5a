"""When a transcript's channels are told apart, and how each is named to a reader."""

from spool.transcript import Transcript


def has_channels(transcript: Transcript) -> bool:
    """Whether more than one channel was transcribed by itself."""
    separate = transcript.options.get("channels") == "separate" and transcript.audio.channels > 1
    return separate or any(segment.channel for segment in transcript.segments)


def label(channel: int, many: bool) -> str:
    """What stands before a line of this channel; nothing where there is one channel only."""
    return f"Channel {channel + 1}: " if many else ""
