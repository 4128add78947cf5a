"""Transcription of files without a queue."""
