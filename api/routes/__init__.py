"""The HTTP handlers, one module a resource. They hold no business logic and never import one another."""
