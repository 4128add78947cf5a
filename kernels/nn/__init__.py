"""Fused operations of the neural network: elementwise chains and convolutions."""
