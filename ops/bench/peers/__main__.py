"""`python -m ops.bench.peers`: the comparison of `ops.bench.peers.compare`."""

from ops.bench.peers.compare import main

main()
