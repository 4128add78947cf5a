from .activity import TUNED as TUNED, active_segments as active_segments, active_stretches as active_stretches
from .base import (
    Blocks as Blocks,
    Diarization as Diarization,
    DiarizationModel as DiarizationModel,
    RunSteps as RunSteps,
    SpeakerActivity as SpeakerActivity,
    SpeakerBounds as SpeakerBounds,
    SpeakerSegment as SpeakerSegment,
    SpeechHeard as SpeechHeard,
    TooLongAtOnce as TooLongAtOnce,
    run_here as run_here,
)
from .clustering import ClusterOptions as ClusterOptions, cluster_prints as cluster_prints
from .diarizer import DiarizeOptions as DiarizeOptions, Diarizer as Diarizer, VoiceNetwork as VoiceNetwork
from .encoder import VoiceEncoder as VoiceEncoder, WEIGHTS as WEIGHTS
from .prints import FEWEST_WINDOWS as FEWEST_WINDOWS, speaker_prints as speaker_prints
from .registry import load_diarization as load_diarization, load_network as load_network, place_of as place_of
from .sortformer import Followed as Followed, Sortformer as Sortformer
from .takeover import Reason as Reason, hear as hear
from .timeline import build_timeline as build_timeline, render_rttm as render_rttm
from .windows import (
    EncodeVoices as EncodeVoices,
    WindowOptions as WindowOptions,
    plan_windows as plan_windows,
    voice_prints as voice_prints,
)
from .words import label_words as label_words
