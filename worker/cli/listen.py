"""`spool-worker listen`: sends a file through a live session, without a queue.

Knows options and printing; `worker.local.live` does the work and defines the output.
"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from worker.cli.options import ListenFlags
from worker.live.endpoint import EndpointRules
from worker.machine.blas import preload_blas

RULES = EndpointRules()


def listen(
    file: Annotated[Path, Parameter(name="FILE", help="Recording to send through a live session.")],
    /,
    *,
    options: Annotated[ListenFlags, Parameter(name="*")],
    chunk_ms: Annotated[
        int,
        Parameter(
            validator=Number(gte=1), help="Length of the blocks the audio is sent in. Changes no result."
        ),
    ] = 80,
    endpoints: Annotated[
        bool,
        Parameter(
            help="End utterances at silences. --no-endpoints makes the file one utterance.",
            negative_bool="no-",
        ),
    ] = True,
    silence_ms: Annotated[
        int, Parameter(validator=Number(gte=1), help="Silence after a word that ends an utterance.")
    ] = round(RULES.silence * 1000),
    longest_ms: Annotated[
        int, Parameter(validator=Number(gte=1), help="Maximum length of an utterance.")
    ] = round(RULES.longest * 1000),
    restart: Annotated[
        bool,
        Parameter(
            help="Restart the search after each utterance. By default it continues, and the finals together "
            "equal the output of transcribe --no-chunk.",
        ),
    ] = False,
    speech_detector: Annotated[
        bool,
        Parameter(
            help="Also end utterances where the detector hears no speech.",
        ),
    ] = False,
) -> None:
    """Send a file through a live session and print its partial and final results as JSON lines."""
    # The BLAS must be there before MLX, which comes in with what follows.
    preload_blas()
    from worker.live.session import LiveOptions
    from worker.local.live import line_of, listen_to
    from worker.models.load import load_model

    rules = EndpointRules(silence=silence_ms / 1000, longest=longest_ms / 1000)
    live = LiveOptions(
        search=options.resolve().search,
        endpoints=rules if endpoints else None,
        restarts=restart,
        keeps=options.nbest > 1,
        detects=speech_detector,
    )
    loaded = load_model(options.model)
    for event in listen_to(file, loaded, live, chunk_ms / 1000):
        print(line_of(event, loaded.tokenizer))
