"""The operations of beam search on the device: expand, recombine, prefixes, n-gram scores, top-k."""
