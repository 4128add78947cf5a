"""Numbers as digits: a rendering for readers, never in the record.

By text2num (MIT, Allo-Media): cardinal, ordinal and decimal numbers of eight languages. It leaves dates and
money unchanged except for their numbers, and splits years ("19 45"); for English `english_numbers` continues.
"""

from text_to_num import alpha2digit

from spool.domain.archive.edits import rewrite_segments
from spool.domain.archive.verbatim import leave_out
from spool.domain.transcript import Transcript
from spool.errors import InvalidRequest
from spool.formats.english_numbers import write_english_numbers

DIGIT_LANGUAGES = ("da", "de", "en", "es", "fr", "it", "nl", "pt")
AUTO = "auto"


def with_digits(transcript: Transcript, language: str) -> Transcript:
    """The transcript with its numbers as digits, read in `language` (a code, or `auto` for the transcript's).

    A number takes the time of its words; words that are left out are not there. Raises InvalidRequest for an
    unsupported language.
    """
    code = transcript.language if language == AUTO else language
    known = ", ".join(DIGIT_LANGUAGES)
    if code is None:
        raise InvalidRequest(f"digits: the transcript does not state its language; choose one of {known}.")
    if code not in DIGIT_LANGUAGES:
        raise InvalidRequest(f"digits: {code!r} is not supported; choose one of {known}.")
    transcript = leave_out(transcript)  # "twenty, uh, two" is one number
    texts = [each.text for each in transcript.segments]
    if code == "en":
        return rewrite_segments(transcript, [write_english_numbers(text) for text in texts])
    return rewrite_segments(transcript, [alpha2digit(text, code) for text in texts])
