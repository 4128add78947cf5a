"""Handlers of what stands in the archive after transcription: words, sound, speakers, search."""
