"""Speech models in MLX: their faces, their families, and the parts that families share."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
