from .chips import CHIPS as CHIPS, Chip as Chip, chip_named as chip_named, parse_fleet as parse_fleet
from .fleet import Known as Known, build_fleet as build_fleet, read_calibration as read_calibration
from .model_size import read_shape as read_shape
from .shapes import BlockShape as BlockShape, DecoderShape as DecoderShape, ModelShape as ModelShape
from .plan import (
    Machine as Machine,
    Ownership as Ownership,
    Surroundings as Surroundings,
    Workload as Workload,
    by_chip as by_chip,
    make_plan as make_plan,
    what_if as what_if,
)
from .recordings import (
    Lengths as Lengths,
    parse_lengths as parse_lengths,
    read_lengths as read_lengths,
    summarize as summarize,
)
from .roofline import (
    Batch as Batch,
    cap as cap,
    cost_of as cost_of,
    cost_of_reading as cost_of_reading,
    count_dense_operations as count_dense_operations,
    count_frames as count_frames,
)
from .throughput import FittedPace as FittedPace, RooflinePace as RooflinePace, Run as Run, fit as fit
