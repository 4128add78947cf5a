"""Recordings as the API gives them out: where their bytes are, their samples, and WAV files made of these."""
