"""Route handlers, one file per resource; they never import one another."""
