"""Live sessions: audio as it comes in, partial and final results as they are known."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
