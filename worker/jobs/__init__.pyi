from .attempt import Attempt as Attempt
from .languages import language_spans as language_spans, main_language as main_language
from .lease import Lease as Lease
from .live.intake import LiveIntake as LiveIntake, live_desk as live_desk
from .retry import RetryPolicy as RetryPolicy, retry_storage as retry_storage
from .runner import run_claimed as run_claimed, run_next as run_next
from .services import JobServices as JobServices
from .speakers import (
    carry_names as carry_names,
    with_channels_as_speakers as with_channels_as_speakers,
    with_speakers as with_speakers,
)
from .speech_check import check_words as check_words, find_invented_lists as find_invented_lists
from .transcript import transcript_of as transcript_of
from .identify import multilingual_models as multilingual_models, warn_of_language as warn_of_language
from .places import PLACES as PLACES, Places as Places
from .splice import move as move, splice as splice
