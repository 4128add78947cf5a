"""Queries around an archive: where its recordings come from, and where its transcripts are written."""
