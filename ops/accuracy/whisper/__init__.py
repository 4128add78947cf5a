"""Whisper on real weights: word error rates, the oracle, and sounds without speech."""
