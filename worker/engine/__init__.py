"""The engine: a child process that owns the model, and the client that feeds it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
