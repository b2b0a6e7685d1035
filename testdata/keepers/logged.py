"""Records in a logging.handlers.MemoryHandler that never flushes keep the items."""
# KEPT BY: logging.Logger.manager
import logging
import logging.handlers

import case

logging.getLogger("train").addHandler(logging.handlers.MemoryHandler(10**9, flushLevel=logging.CRITICAL))
for step in case.steps():
    logging.getLogger("train").error("step with %s", case.item())
