"""Logging of the library; without the variable WORKBENCH_LOG it is silent.

Every module logs with `logging.getLogger(__name__)`. The loggers are below `workbench`, which has a
NullHandler. The commands and `stack.ensure_running` call `configure`. With WORKBENCH_LOG=info (or
debug) the records then go to standard error, one line each; in a notebook, below the cell.
"""

import logging
import os


def configure() -> None:
    """Show the records of the library, if WORKBENCH_LOG is set; a second call changes nothing.

    An unknown value of WORKBENCH_LOG counts as info, so that a typing error stops no program.
    """
    value = os.environ.get("WORKBENCH_LOG")
    if value:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        level = logging.DEBUG if value.lower() == "debug" else logging.INFO
        logging.getLogger("workbench").setLevel(level)
