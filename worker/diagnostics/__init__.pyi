from .bench import run_bench as run_bench
from .check import check_machine as check_machine
from .confirm.quality import (
    ROOT as ROOT,
    compare_words as compare_words,
    compare_with as compare_with,
    listen_reference as listen_reference,
    spoken_words as spoken_words,
    spread as spread,
)
from .confirm.report import (
    StepOutcome as StepOutcome,
    Result as Result,
    Step as Step,
    new_report as new_report,
    write_report as write_report,
)
from .finding import Finding as Finding
from .macos import metal as metal, rosetta as rosetta, sleep as sleep
