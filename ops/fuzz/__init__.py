"""Fuzzing of whatever parses bytes from outside: audio files, models, requests."""
