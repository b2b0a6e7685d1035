"""A fork with a PID of one's choice."""

import ctypes
import errno
import os
import signal
import time

libc = ctypes.PyDLL(None, use_errno=True)
SYS_clone3 = 435


def fork_as(pid):
    """Is os.fork for a child with that PID, which root may choose. It waits until no process has the PID."""
    wanted = ctypes.c_int(pid)
    arguments = (ctypes.c_uint64 * 11)()  # struct clone_args
    arguments[4], arguments[8], arguments[9] = signal.SIGCHLD, ctypes.addressof(wanted), 1  # exit_signal, set_tid and its size
    while True:
        now = libc.syscall(SYS_clone3, ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments)))
        if now >= 0:
            return now
        if ctypes.get_errno() != errno.EEXIST:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        time.sleep(0.001)
