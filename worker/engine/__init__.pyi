from .ahead import WorkAhead as WorkAhead
from .audio_slots import AudioSlots as AudioSlots, AudioView as AudioView
from .client import Engine as Engine
from .diarization import StepRecognizer as StepRecognizer
from .handover import (
    HandedOver as HandedOver,
    HandoverFolder as HandoverFolder,
    MOST_AGE as MOST_AGE,
    Unsettled as Unsettled,
)
from .inbox import Inbox as Inbox, Reports as Reports
from .live_session import (
    EngineSession as EngineSession,
    LiveRequest as LiveRequest,
    LiveSessions as LiveSessions,
    UNMEASURED_SESSIONS as UNMEASURED_SESSIONS,
)
from .live_steps import LiveSteps as LiveSteps
from .memory_budget import budget_of as budget_of, engine_options as engine_options
from .model_cache import ModelCache as ModelCache, file_size as file_size
from .pending import PendingRequests as PendingRequests
from .protocol import (
    DEFAULT_LOADER as DEFAULT_LOADER,
    Describe as Describe,
    Described as Described,
    EngineOptions as EngineOptions,
    Failure as Failure,
    Finished as Finished,
    Loaded as Loaded,
    ModelCacheOptions as ModelCacheOptions,
    Report as Report,
    Started as Started,
    Utterance as Utterance,
)
from .recognizer import (
    ModelRecognizer as ModelRecognizer,
    check_decoding as check_decoding,
    decode_utterances as decode_utterances,
    load_recognizer as load_recognizer,
    recognizer_of as recognizer_of,
)
from .scheduler import (
    BatchLimits as BatchLimits,
    BatchPace as BatchPace,
    FIRST_SAMPLES as FIRST_SAMPLES,
    QueuedUtterance as QueuedUtterance,
    UtteranceQueue as UtteranceQueue,
    split_exactly as split_exactly,
)
from .server import BatchRunner as BatchRunner, pause_seconds as pause_seconds
from .turns import StepBrokeError as StepBrokeError
