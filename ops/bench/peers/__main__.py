"""`python -m ops.bench.peers`: the comparison of `ops.bench.peers.compare`, or with `--family whisper` that
of `ops.bench.peers.whisper.compare`."""

import sys

from ops.bench.peers import compare
from ops.bench.peers.whisper import compare as whisper

if sys.argv[1:3] == ["--family", "whisper"]:
    whisper.main(sys.argv[3:])
else:
    compare.main()
