from .batches import BatchRequest as BatchRequest
from .events import (
    BatchEvent as BatchEvent,
    BatchProgress as BatchProgress,
    JobEvent as JobEvent,
    JobProgress as JobProgress,
)
from .fleet import ProblemOut as ProblemOut
from .jobs import JobDetail as JobDetail, JobRequest as JobRequest
from .sources import SourceRequest as SourceRequest
