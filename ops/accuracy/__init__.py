"""What each way of decoding is worth, measured by Spool's own engine: writes docs/accuracy.md."""
