"""Kernels of a beam step: expand, recombine, n-gram scores, prefixes, top-k."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
