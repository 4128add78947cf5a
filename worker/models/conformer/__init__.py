"""The Conformer encoder."""
