"""`spool-worker align`: aligns an existing transcript with its recording, without a queue.

`--format json` prints the transcript's record (`spool.domain.transcript`); `spool.formats` renders the other
formats. Warnings go to stderr.
"""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from spool.errors import InvalidRequest
from worker.machine.blas import preload_blas


def align(
    recording: Annotated[Path, Parameter(help="The recording.")],
    transcript: Annotated[Path, Parameter(help="Its words: a text, SRT, WebVTT or Word (.docx) file.")],
    /,
    *,
    model: Annotated[
        str, Parameter(help="A model with a CTC head: folder, .nemo file, catalogue name or hub id.")
    ],
    form: Annotated[
        str, Parameter(name="--format", help="json (the record), txt, srt, vtt, eaf, textgrid and others.")
    ] = "json",
) -> None:
    """Print when each word of an existing transcript is spoken, and whether it belongs to the recording."""
    preload_blas()
    from spool.domain.archive.alignment import Typescript
    from spool.domain.archive.typescripts import MAX_TYPESCRIPT_BYTES, read_typescript
    from spool.formats import TEXT_FORMATS, render
    from worker.local.align import align_file
    from worker.models.load import load_model

    if form not in TEXT_FORMATS:
        raise InvalidRequest(f"--format: {form!r} is not one of {', '.join(TEXT_FORMATS)}")
    try:
        with transcript.open("rb") as file:
            data = file.read(MAX_TYPESCRIPT_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{transcript}: the transcript cannot be read: {error.strerror}") from error
    text = Typescript(read_typescript(data, transcript.name))
    result = align_file(load_model(model), recording, text)
    print(render(result, form), end="")
    for warning in result.warnings:
        print(f"{transcript}: {warning}", file=sys.stderr)
