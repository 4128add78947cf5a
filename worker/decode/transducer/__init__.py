"""Greedy and beam search for transducers (RNN-T and TDT)."""
