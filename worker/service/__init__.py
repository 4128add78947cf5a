"""The worker's process around its jobs: heartbeat, health, hours, counters, supervision."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
