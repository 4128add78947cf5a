from .detector import FRAME as FRAME, SpeechDetector as SpeechDetector, WEIGHTS as WEIGHTS
from .guard import (
    doubtful_words as doubtful_words,
    find_invented as find_invented,
    measure_coverage as measure_coverage,
)
from .listener import SpeechListener as SpeechListener, listeners as listeners
from .spans import (
    SpanLabel as SpanLabel,
    label_spans as label_spans,
    silent_stretches as silent_stretches,
    speech_stretches as speech_stretches,
)
from .weights import read_float32 as read_float32
