from .chunker import (
    Chunk as Chunk,
    ChunkOptions as ChunkOptions,
    ChunkPlanner as ChunkPlanner,
    plan_channels as plan_channels,
    plan_chunks as plan_chunks,
)
from .levels import (
    GateOptions as GateOptions,
    best_pause as best_pause,
    frame_moments as frame_moments,
    levels_of as levels_of,
)
from .segments import (
    SegmentOptions as SegmentOptions,
    ends_sentence as ends_sentence,
    segments_of as segments_of,
)
