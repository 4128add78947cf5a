"""`spool-worker transcribe`: transcribes files without a queue.

Knows printing and the exit code. The options are in `worker.cli.options`; `worker.local.transcribe` does the
work.
"""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from spool.commandline.app import GROUPS
from spool.commandline.speakers import SpeakerCount
from worker.cli.options import TranscribeFlags
from worker.local.report import render_results
from worker.machine.blas import preload_blas


def transcribe(
    *files: Annotated[Path, Parameter(name="FILE", help="Recordings to transcribe.", required=True)],
    options: Annotated[TranscribeFlags, Parameter(name="*")],
    speakers: Annotated[SpeakerCount, Parameter(name="*", group=GROUPS["Speakers"])] = SpeakerCount(),
    chunk: Annotated[
        bool,
        Parameter(
            help="Split at silences. --no-chunk decodes each file whole, all files as one batch.",
            negative_bool="no-",
        ),
    ] = True,
) -> None:
    """Transcribe files without a queue. A file that fails stops no other; the exit code is then 1."""
    # The BLAS must be there before MLX, which comes in with worker.local.transcribe.
    preload_blas()
    from worker.local.transcribe import transcribe_files

    request, second = options.request(), options.rescore
    results = transcribe_files(
        list(files),
        options.model,
        request.search,
        chunk=chunk,
        ask=request,
        carries=request.carries,
        detector=options.speech_detector,
        diarization=options.to_diarization(speakers),
        rescore=None if second is None else (second.model, second.weight),
        diarizer=options.diarizer,
        witness=options.witness,
        drop_unsupported=options.drop_unsupported,
        verbatim=options.verbatim,
    )
    print(render_results(results, options.form, options.lattice_form))
    skipped = dict.fromkeys(text for each in results if each.transcript for text in each.transcript.warnings)
    for warning in skipped:
        print(warning, file=sys.stderr)
    for result in results:
        if result.transcript is not None and result.transcript.audio.complete is False:
            print(f"{result.file}: {result.transcript.audio.warnings[-1]}", file=sys.stderr)
    if any(result.error for result in results):
        raise SystemExit(1)
