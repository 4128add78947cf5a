from .alignment.aligner import align_texts as align_texts
from .alignment.emissions import Emissions as Emissions, FLOOR as FLOOR
from .alignment.matching import match_words as match_words
from .alignment.recording import (
    RecordingFrames as RecordingFrames,
    core_emissions as core_emissions,
    find_cuts as find_cuts,
)
from .alignment.viterbi import align_tokens as align_tokens
from .alignment.words import align_words as align_words, marks_of as marks_of
from .attention.beam import (
    AttentionSearch as AttentionSearch,
    BeamSettings as BeamSettings,
    GenerateBeam as GenerateBeam,
    GenerateState as GenerateState,
    KeptBeam as KeptBeam,
    KeptState as KeptState,
    ScoredTokens as ScoredTokens,
    SearchAnswer as SearchAnswer,
    SearchRequest as SearchRequest,
    SumBeam as SumBeam,
)
from .attention.fused import FusedTokens as FusedTokens, fuse_tokens as fuse_tokens
from .answer import (
    Answer as Answer,
    MOST_ARCS as MOST_ARCS,
    best_of as best_of,
    lattice_of as lattice_of,
)
from .attention.assembly import WindowText as WindowText, combine as combine
from .attention.reading import compression_ratio as compression_ratio, read_utterances as read_utterances
from .attention.rescore import RescoringWeights as RescoringWeights, rescore as rescore
from .attention.second import SecondReader as SecondReader
from .ctc.beam import ctc_beam_search as ctc_beam_search
from .ctc.greedy import ctc_greedy as ctc_greedy
from .ctc.prefix import ctc_prefix_search as ctc_prefix_search
from .fusion.arpa import (
    Arpa as Arpa,
    BEGIN as BEGIN,
    END as END,
    Entry as Entry,
    LN10 as LN10,
    UNKNOWN as UNKNOWN,
    read_arpa as read_arpa,
    write_arpa as write_arpa,
)
from .fusion.estimate import FALLBACK as FALLBACK
from .fusion.fusion import (
    Fusion as Fusion,
    LONGEST_PHRASE as LONGEST_PHRASE,
    Source as Source,
    find_unspelled as find_unspelled,
    make_fusion as make_fusion,
    read_model as read_model,
)
from .fusion.graph import BoundGraph as BoundGraph, Graph as Graph
from .fusion.ngram import language_model as language_model
from .fusion.phrases import phrase_tree as phrase_tree
from .fusion.spelling import spell as spell, warn_of_unspelled as warn_of_unspelled
from .lattice.build import word_graph as word_graph
from .lattice.confidence import (
    LatticeWord as LatticeWord,
    arc_posteriors as arc_posteriors,
    confusion_bins as confusion_bins,
    with_confidence as with_confidence,
)
from .lattice.prefix_graph import Record as Record
from .lattice.reweighted import reweight as reweight
from .lattice.word_graph import (
    Final as Final,
    SLACK as SLACK,
    WordArc as WordArc,
    WordGraph as WordGraph,
    best_path as best_path,
    best_weights as best_weights,
    posteriors as posteriors,
    prune_graph as prune_graph,
    total as total,
    widest_beam as widest_beam,
    with_posteriors as with_posteriors,
)
from .live.base import LiveSearch as LiveSearch, before as before
from .live.beam import LiveBeam as LiveBeam
from .live.ctc_beam import LiveCtcBeam as LiveCtcBeam
from .live.greedy import LiveCtcGreedy as LiveCtcGreedy, LiveGreedy as LiveGreedy
from .recorder import LatticeRecorder as LatticeRecorder
from .search import answers as answers, check_options as check_options
from .transducer.beam import (
    BeamSearch as BeamSearch,
    BeamState as BeamState,
    CHECK_EVERY as CHECK_EVERY,
    TOKEN_BLOCK as TOKEN_BLOCK,
    beam_search as beam_search,
)
from .transducer.greedy import GreedySearch as GreedySearch, greedy_search as greedy_search
from .transducer.likelihood import log_likelihoods as log_likelihoods
from .transducer.replayed import ReplayedBeam as ReplayedBeam
from .transducer.stepping import advance as advance, joint_logits as joint_logits, reorder as reorder
from .wfst.graph import DecodingGraph as DecodingGraph, load_graph as load_graph
from .wfst.search import limits_of as limits_of, wfst_search as wfst_search
from .words import (
    CONFIDENCE_DIGITS as CONFIDENCE_DIGITS,
    SCORE_DIGITS as SCORE_DIGITS,
    text_of as text_of,
    words_of as words_of,
)
