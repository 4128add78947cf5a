"""Greedy and prefix beam search for CTC."""
