"""The domain rules. Pure: no storage, no settings, and no clock except one passed in."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
