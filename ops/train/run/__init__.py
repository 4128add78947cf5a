"""Training runs of the demo model: the loop, its evaluation, and the export of weights."""
