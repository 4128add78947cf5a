"""WeNet's own answers against this family's, and what summing alignments gives."""
