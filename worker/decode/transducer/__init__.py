"""Search over a transducer head (RNN-T and TDT)."""
