"""Kernels of a beam step: expand, recombine, n-gram scores, prefixes, top-k."""
