"""Lattices of the search: built from the recorded steps, turned into words, with posteriors."""
