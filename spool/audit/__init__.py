"""The audit: rules that every database must keep, and the runner that checks them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
