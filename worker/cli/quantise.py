"""`spool-worker quantise`: writes a model with 8 or 4 bits a weight.

`spool models get NAME --bits 8` runs this and keeps the result in the model store. Prints it as JSON.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from spool.errors import InvalidRequest
from worker.machine.blas import preload_blas


def quantise(
    model: Annotated[str, Parameter(help="Folder, .nemo file, catalogue name or hub id.")],
    folder: Annotated[Path, Parameter(help="Folder to write.")],
    /,
    *,
    bits: Annotated[int, Parameter(help="Bits a weight: 8 or 4.")] = 8,
) -> None:
    """Write a model with 8 or 4 bits a weight."""
    preload_blas()
    from worker.models.load import model_files
    from worker.models.quantise import quantise as write

    if folder.exists() and not (folder.is_dir() and next(folder.iterdir(), None) is None):
        raise InvalidRequest(f"{folder}: is not an empty folder; name a new one")
    print(json.dumps(asdict(write(model_files(model), folder, bits))))
