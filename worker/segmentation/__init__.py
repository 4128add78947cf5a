"""From audio to utterances of bounded length, and from their words back to one transcript."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
