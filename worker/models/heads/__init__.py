"""Heads on an encoder: transducers and CTC."""
