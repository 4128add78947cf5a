"""Decoding graphs (weighted finite-state transducers): their file, and how one is built. Only users of graphs
import numpy; only building needs kaldifst and kaldilm."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
