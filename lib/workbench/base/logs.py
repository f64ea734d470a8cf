"""Logging of the library; without the variable WORKBENCH_LOG it is silent.

Every module logs with `logging.getLogger(__name__)`. The loggers are below `workbench`, which has a
NullHandler. The commands and `stack.ensure_running` call `configure`. With WORKBENCH_LOG=info (or
debug) the records then go to the standard error of the process, one line each. In a notebook this is
the log of the kernel, not the output of the cell.
"""

import logging
import os
import sys
from typing import Optional, TextIO

LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}


def configure() -> None:
    """Attach the handler of the library's logger; a second call changes nothing.

    An unknown value of WORKBENCH_LOG counts as info, so that a typing error stops no program.
    """
    logger = logging.getLogger("workbench")
    value = os.environ.get("WORKBENCH_LOG")
    if not value or any(isinstance(h, logging.StreamHandler) for h in logger.handlers):
        return
    handler = logging.StreamHandler(_process_stderr())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(LEVELS.get(value.lower(), logging.INFO))
    logger.propagate = False


def _process_stderr() -> Optional[TextIO]:
    """Return the standard error that the process was started with.

    A Jupyter kernel redirects sys.stderr and file descriptor 2 to the output of the cell. There
    `sys.stderr.fileno()` still returns a descriptor of the original standard error.
    """
    try:
        return open(sys.stderr.fileno(), "w", buffering=1, encoding="utf-8", closefd=False)
    except (AttributeError, OSError):
        return sys.__stderr__
