from .artifacts.hub_folder import HubFolder as HubFolder, is_hub_folder as is_hub_folder
from .artifacts.nemo import TOKENIZER_SUFFIX as TOKENIZER_SUFFIX, open_nemo as open_nemo
from .artifacts.torch_checkpoint import TensorUnpickler as TensorUnpickler, TorchCheckpoint as TorchCheckpoint
from .attention.alignment import align_tokens as align_tokens
from .attention.languages import Languages as Languages
from .attention.layers import attend_frames as attend_frames
from .attention.nemo_decoder import NemoDecoder as NemoDecoder
from .attention.prompt_slots import (
    DEFAULTS as DEFAULTS,
    prompt_slots as prompt_slots,
    prompt_tokens as prompt_tokens,
)
from .attention.repeats import cut_repeats as cut_repeats
from .attention.rules import NoRules as NoRules
from .attention.state import EncodedBatch as EncodedBatch, EncodedWindow as EncodedWindow
from .attention.unread import sounds as sounds, unread_spans as unread_spans, find_unread as find_unread
from .attention.windows import (
    ROUNDS_MAX as ROUNDS_MAX,
    cut_runs as cut_runs,
    is_steady as is_steady,
    judge_answer as judge_answer,
    quietest as quietest,
)
from .base import (
    BatchCost as BatchCost,
    Capabilities as Capabilities,
    HeadName as HeadName,
    Independent as Independent,
    ModelFiles as ModelFiles,
    ModelInfo as ModelInfo,
    PreparedRequest as PreparedRequest,
    SpeechModel as SpeechModel,
    Spelling as Spelling,
    TokenSpan as TokenSpan,
    refuse_unsupported as refuse_unsupported,
)
from .base_attention import (
    EndRule as EndRule,
    HeardWindow as HeardWindow,
    NO_OPENING as NO_OPENING,
    Opening as Opening,
    Prompt as Prompt,
    Question as Question,
    PromptAnswer as PromptAnswer,
    RuleState as RuleState,
    SAMPLE_RATE as SAMPLE_RATE,
    TimedText as TimedText,
    TokenTimes as TokenTimes,
    Unread as Unread,
    WindowOutcome as WindowOutcome,
    Window as Window,
)
from .tokenizers.bytes import WordByteTokenizer as WordByteTokenizer, byte_table as byte_table
from .canary.config import (
    CanaryConfig as CanaryConfig,
    parse_canary as parse_canary,
    round_vocabulary as round_vocabulary,
)
from .canary.load import Canary as Canary
from .canary.model import CanaryModel as CanaryModel
from .attention.stamps import time_stamped_words as time_stamped_words
from .canary.tokenizer import CanaryTokenizer as CanaryTokenizer
from .conformer.attention import (
    AttentionContext as AttentionContext,
    Positions as Positions,
    RelPositionAttention as RelPositionAttention,
    RelPositionLocalAttention as RelPositionLocalAttention,
    position_table as position_table,
)
from .conformer.config import (
    CONVOLUTIONS as CONVOLUTIONS,
    EncoderConfig as EncoderConfig,
    PreprocessorConfig as PreprocessorConfig,
)
from .conformer.encoder import (
    ConformerEncoder as ConformerEncoder,
    USUAL_FRAMES as USUAL_FRAMES,
    length_bucket as length_bucket,
)
from .conformer.frames import EncodedFrames as EncodedFrames
from .conformer.layer import ConformerLayer as ConformerLayer
from .conformer.subsampling import Conv2dSubsampling as Conv2dSubsampling
from .conformer.streaming import EncoderSteps as EncoderSteps, EncoderStream as EncoderStream
from .front_ends.dithered import torch_randn as torch_randn
from .front_ends.log_mel import FeatureExtractor as FeatureExtractor, mel_filters as mel_filters
from .granite.config import GraniteConfig as GraniteConfig, parse_granite as parse_granite
from .granite.model import (
    GRANITE as GRANITE,
    GraniteModel as GraniteModel,
    GraniteNetwork as GraniteNetwork,
)
from .heads.config import JointConfig as JointConfig, PredictionConfig as PredictionConfig
from .heads.ctc import CtcDecoder as CtcDecoder, CtcHead as CtcHead
from .heads.transducer import (
    JointNetwork as JointNetwork,
    LstmState as LstmState,
    PredictionNetwork as PredictionNetwork,
    Transducer as Transducer,
)
from .language.lstm import FILES as FILES, LstmLanguageModel as LstmLanguageModel
from .load import load_model as load_model, load_reader as load_reader
from .front_ends.mel_stream import MelStream as MelStream
from .hama.load import Hama as Hama
from .nemo.config import parse_config as parse_config, read_config as read_config
from .nemo.model import NemoModel as NemoModel, Network as Network
from .registry import FAMILIES as FAMILIES
from .requests import (
    CONTEXT_TOKENS as CONTEXT_TOKENS,
    DecodeRequest as DecodeRequest,
    IdentifyLanguage as IdentifyLanguage,
    SearchOptions as SearchOptions,
)
from .sortformer.cache import SpeakerCache as SpeakerCache, keep_frames as keep_frames
from .sortformer.config import StreamingOptions as StreamingOptions
from .sortformer.load import load_sortformer as load_sortformer
from .sortformer.network import SortformerNetwork as SortformerNetwork
from .streaming import require_streaming as require_streaming
from .tokenizers.pieces import Tokenizer as Tokenizer, WORD_START as WORD_START
from .turns import give_way as give_way, giving_way_to as giving_way_to
from .weights import NEMO as NEMO, read_stored as read_stored, stored_shapes as stored_shapes
from .wenet.decoder import WenetHead as WenetHead
from .front_ends.filter_bank import (
    FilterBankStream as FilterBankStream,
    feature_frames as feature_frames,
    filter_bank as filter_bank,
    pad_features as pad_features,
)
from .wenet.load import load_wenet as load_wenet
from .wenet.model import WENET as WENET, WenetModel as WenetModel, WenetNetwork as WenetNetwork
from .tokenizers.units import UnitTokenizer as UnitTokenizer, read_units as read_units
from .qwen3_aligner.model import (
    QwenAligner as QwenAligner,
    repair_times as repair_times,
    split_units as split_units,
)
from .qwen3_asr.config import QwenConfig as QwenConfig, parse_qwen as parse_qwen
from .qwen3_asr.load import Qwen3Asr as Qwen3Asr
from .qwen3_asr.model import QwenModel as QwenModel
from .qwen3_asr.output import parse_output as parse_output
from .attention.alignment import attention_matrix as attention_matrix
from .whisper.artifacts import open_folder as open_folder
from .whisper.config import (
    DecodingSettings as DecodingSettings,
    HUGGING_FACE_NAMES as HUGGING_FACE_NAMES,
    LANGUAGE_CODES as LANGUAGE_CODES,
    SpecialTokens as SpecialTokens,
    WhisperDims as WhisperDims,
    context_frames as context_frames,
)
from .front_ends.whisper_mel import log_mel as log_mel
from .whisper.model import Whisper as Whisper, WhisperModel as WhisperModel, load_whisper as load_whisper
from .whisper.rules import WhisperOptions as WhisperOptions
from .whisper.tokenizer import (
    WhisperTokenizer as WhisperTokenizer,
)
from .whisper.windows import close_timestamps as close_timestamps
from .attention.words import (
    TimedWord as TimedWord,
    join_punctuation as join_punctuation,
    join_unspaced as join_unspaced,
    time_words as time_words,
    without_pauses as without_pauses,
)
from .quality import (
    list_measured as list_measured,
    quality_problem as quality_problem,
    read_qualities as read_qualities,
    write_quality as write_quality,
)
