"""What a fleet will need for an amount of audio: time, money, energy, and the bottleneck. Pure arithmetic.

Knows models by their sizes and chips by their data sheets; knows no MLX, no database and no server.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
