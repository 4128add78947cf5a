"""Speech detection: the network, the spans of its probabilities, and their use in checking words."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
