from .corrected import correct_record as correct_record
from .cueing import (
    Cue as Cue,
    PRESETS as PRESETS,
    Preset as Preset,
    RULES as RULES,
    SubtitleRules as SubtitleRules,
    cues_of as cues_of,
)
from .digits import DIGIT_LANGUAGES as DIGIT_LANGUAGES, with_digits as with_digits
from .english_numbers import write_english_numbers as write_english_numbers
from .file_names import free_name as free_name
from .iiif import IIIF_TYPE as IIIF_TYPE, manifest as manifest
from .lattices import format_entry as format_entry
from .names import (
    CONTENT_TYPES as CONTENT_TYPES,
    FORMATS as FORMATS,
    Format as Format,
    STORED as STORED,
    ServedFormat as ServedFormat,
    TEXT_FORMATS as TEXT_FORMATS,
    TextFormat as TextFormat,
)
from .parts import open_record as open_record
from .pbcore import pbcore as pbcore
from .redacted import mark_record as mark_record, redact_record as redact_record
from .rendering import check_subtitles as check_subtitles, render as render, render_bytes as render_bytes
from .tiers import Annotation as Annotation, tiers_of as tiers_of
