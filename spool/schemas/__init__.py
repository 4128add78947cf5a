"""The shapes of requests and answers over HTTP, as the server writes them and the client reads them.

A module for each resource of the API; `common` has the types that they share, `examples` one example of each
for the OpenAPI page. Answers ignore unknown fields, so a client may be older than its server.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
