"""From requests to jobs and batches: sources, options, uploads, manifests."""
