"""A transcript in every format. Pure: a transcript in, text or bytes out.

The JSON is the record; it and the common formats (`STORED`) are in the object store, the others are rendered
on request.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
