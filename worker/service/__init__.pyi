from .affinity import ModelAffinity as ModelAffinity, list_loaded as list_loaded
from .appetite import Appetite as Appetite, MOST_JOBS as MOST_JOBS
from .endings import Endings as Endings
from .health import (
    Health as Health,
    clock_problem as clock_problem,
    disk_problem as disk_problem,
    machine_problems as machine_problems,
    write_problem as write_problem,
)
from .hint_transport import DROPPED as DROPPED, Transport as Transport
from .job_gate import JobGate as JobGate
from .log_file import log_into as log_into
from .schedule import OffHours as OffHours
from .wasted_time import WastedTime as WastedTime
