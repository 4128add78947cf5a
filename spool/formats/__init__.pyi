from .digits import DIGIT_LANGUAGES as DIGIT_LANGUAGES, with_digits as with_digits
from .english_numbers import write_english_numbers as write_english_numbers
from .file_names import free_name as free_name
from .lattices import format_entry as format_entry
from .names import (
    CONTENT_TYPES as CONTENT_TYPES,
    FORMATS as FORMATS,
    Format as Format,
    STORED as STORED,
    TEXT_FORMATS as TEXT_FORMATS,
    TextFormat as TextFormat,
)
from .rendering import render as render, render_bytes as render_bytes
from .subtitles import cues_of as cues_of
from .tiers import Annotation as Annotation, tiers_of as tiers_of
