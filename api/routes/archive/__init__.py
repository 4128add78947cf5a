"""Handlers of the archive after transcription: words, sound, speakers, search."""
