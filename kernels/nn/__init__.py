"""Kernels of the encoder's layers."""
