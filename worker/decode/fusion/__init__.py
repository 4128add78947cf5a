"""Shallow fusion: language models and boosted phrases in a search's scores."""
