"""Searches with state: carried from chunk to chunk of a stream, equal to the search over the whole."""
