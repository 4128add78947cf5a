"""The Python client: `Spool` for plain code, `AsyncSpool` for asyncio, with the same methods.

    with Spool("http://127.0.0.1:8700") as spool:
        job = spool.wait(spool.submit("reel-42.flac").id)
        print(spool.transcript(job.id, "srt"))

`sync`, `aio` and `base` have the two classes, `exchange` the steps of a call and its retries, `errors` its
exceptions; the other modules have the calls, written once for both classes. Answers are the server's models
(`spool.schemas`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
