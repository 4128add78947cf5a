"""Where kernels run and how they are built: Metal, or C++ compiled for this processor."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
