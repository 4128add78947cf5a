"""Forced alignment of a given text, by a CTC model's log-probabilities."""
