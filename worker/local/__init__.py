"""Transcribes, aligns and listens to files without a queue."""
