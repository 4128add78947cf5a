"""NeMo's own answers against this family's."""
