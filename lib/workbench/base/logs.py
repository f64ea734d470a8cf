"""Logging of the library; without the variable WORKBENCH_LOG it is silent.

Every module logs with `logging.getLogger(__name__)`. The loggers are below `workbench`, which has a
NullHandler. The commands and `stack.ensure_running` call `configure`. With WORKBENCH_LOG=info (or
debug) the records then go to standard error, one line each; in a notebook, below the cell.
"""

import logging
import os

LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}


def configure() -> None:
    """Attach the handler of the library's logger; a second call changes nothing.

    An unknown value of WORKBENCH_LOG counts as info, so that a typing error stops no program.
    """
    logger = logging.getLogger("workbench")
    value = os.environ.get("WORKBENCH_LOG")
    if not value or any(isinstance(h, logging.StreamHandler) for h in logger.handlers):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(LEVELS.get(value.lower(), logging.INFO))
    logger.propagate = False
