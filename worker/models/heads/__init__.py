"""Output heads: the transducer (prediction network and joint) and CTC."""
