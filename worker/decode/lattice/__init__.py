"""Lattices: built from a search's steps, with posteriors and confidence."""
