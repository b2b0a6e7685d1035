"""Callbacks of a contextlib.ExitStack keep their arguments."""
# KEPT BY: exit_stack.stack
# KEPT BY: closure variable args of _BaseExitStack._create_cb_wrapper.<locals>._exit_wrapper()
import contextlib

import case

stack = contextlib.ExitStack()
for step in case.steps():
    stack.callback(print, case.item())
