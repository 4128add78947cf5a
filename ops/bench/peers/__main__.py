"""`python -m ops.bench.peers`: the comparison of `ops.bench.peers.compare`; with `--family whisper` that of
`ops.bench.peers.whisper.compare`, with `--family` and one of 2026 that of `ops.bench.peers.hub.compare`; with
`--whole` that of `ops.bench.peers.whole`."""

import sys

from ops.bench.peers import compare, whole
from ops.bench.peers.hub import compare as hub
from ops.bench.peers.whisper import compare as whisper

arguments = sys.argv[1:]
if "--whole" in arguments:
    arguments.remove("--whole")
    whole.main(arguments)
elif arguments[:2] == ["--family", "whisper"]:
    whisper.main(arguments[2:])
elif arguments[:1] == ["--family"]:
    hub.main(arguments[1:])
else:
    compare.main()
