"""One job on a worker, from claim to transcript."""
