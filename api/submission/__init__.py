"""Jobs and batches on their way in: sources, options, uploads, manifests."""
