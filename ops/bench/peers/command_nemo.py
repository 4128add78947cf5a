"""NeMo's `transcribe`, in its own environment:

python -m ops.bench.peers.command_nemo MODEL.nemo FILE…
"""

import json
import sys

from ops.bench.peers.engine_nemo import Nemo  # brings the settings without which NeMo prints and downloads


def main() -> None:
    path, *files = sys.argv[1:]
    answers = Nemo(path).model.transcribe(files, batch_size=8, timestamps=True, verbose=False)
    for file, answer in zip(files, answers, strict=True):
        print(json.dumps({"file": file, "text": answer.text}))


if __name__ == "__main__":
    main()
