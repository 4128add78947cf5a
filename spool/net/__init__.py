"""Outgoing connections: which addresses are allowed, and HTTP pinned to a checked address."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
