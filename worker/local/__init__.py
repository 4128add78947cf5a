"""Transcribes files of this machine without a queue."""
