"""Search over a CTC head."""
