"""Shallow fusion: n-gram language models and boosted phrases that add to the scores of a search."""
