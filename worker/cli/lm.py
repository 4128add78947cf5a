"""`spool-worker lm`: builds a language model of texts over a model's tokens, as an ARPA file.

`spool lm build` runs this and sends the file to the server. Prints the result as JSON.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from spool.errors import InvalidRequest
from worker.machine.blas import preload_blas


def lm(
    *texts: Annotated[Path, Parameter(name="TEXT", help="UTF-8, one sentence per line.", required=True)],
    model: Annotated[
        str,
        Parameter(help="Model whose tokens it uses: folder, .nemo file, catalogue name or hub id."),
    ],
    output: Annotated[
        Path, Parameter(name=["-o", "--output"], metavar="FILE", help="The ARPA file to write.")
    ],
    order: Annotated[int, Parameter(help="Maximum number of tokens in an n-gram.")] = 4,
) -> None:
    """Build an n-gram language model of texts, for --lm and for `spool lm put`."""
    preload_blas()
    from worker.local.language_model import build_language_model
    from worker.models.load import load_model

    loaded = load_model(model)
    if not {"ctc", "rnnt", "tdt", "attention"} & set(loaded.heads):
        raise InvalidRequest(f"{model}: none of its searches takes a language model")
    built = build_language_model(list(texts), loaded.tokenizer, order, output)
    print(json.dumps(asdict(built)))
