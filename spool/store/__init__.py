"""Every SQL query of Spool. Callers open the transaction (`db.begin()`); these functions run inside it.

None of them commits, sends a message, or reads a clock other than the database's. `queue` has claims, leases,
fair shares, quotas, deadlines and the outbox; `ledger` costs and their reports; `archive` sources, outputs,
uploads and versions; `transcripts` words, speakers, reviews and search. Modules beside them have the name of
what they query.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
