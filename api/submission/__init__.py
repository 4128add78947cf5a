"""Turns requests into jobs and batches: options, sources, uploads, manifests and listings."""
