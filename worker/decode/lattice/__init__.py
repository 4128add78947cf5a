"""Lattices: built from a search's trace, with posteriors and confidence."""
