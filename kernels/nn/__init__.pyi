from .activations import (
    gelu as gelu,
    gelu_reference as gelu_reference,
    row_exp as row_exp,
    row_exp_reference as row_exp_reference,
)
from .elementwise import residual_norm as residual_norm, silu as silu
from .features import filters_of as filters_of, mel_bands as mel_bands, normalise_frames as normalise_frames
from .few_rows import RowSteps as RowSteps
from .lstm_windows import Layer as Layer, LstmWindows as LstmWindows, can_run as can_run
from .int8_products import Int8Products as Int8Products
from .row_products import RowProducts as RowProducts
