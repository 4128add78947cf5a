"""Decoding graphs (weighted finite-state transducers): their file, and how one is built. Only users of graphs
import numpy; only building needs kaldifst and kaldilm."""
