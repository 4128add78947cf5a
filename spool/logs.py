"""How a process of Spool logs: one line an event, for people or as JSON, a library's lines and ours alike.

Knows structlog and logging; knows no event.
"""

import logging
import sys

import structlog
from structlog.typing import Processor

from spool.tracing import add_trace


def configure_logs(as_json: bool) -> None:
    """Send every log line to stderr in one form. Libraries speak from WARNING on, we from INFO on."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_trace,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_json:
        last += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # The plain form: the rich one prints the values of local variables, and some of them are secrets.
        plain = structlog.dev.plain_traceback
        last += [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("spool", "worker", "api"):
        logging.getLogger(name).setLevel(logging.INFO)
