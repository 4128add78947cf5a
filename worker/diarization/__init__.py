"""Speaker diarization: voice prints of short windows, their clusters, and the speaker of each word."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
