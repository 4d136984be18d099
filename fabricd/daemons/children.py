"""Child processes that end with their parent, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/include/uapi/linux/prctl.h


def ends_with_us() -> Callable[[], None]:
    """What the child runs before its program: the kernel then sends it SIGTERM when this process is gone, even by SIGKILL.

    For ``preexec_fn``; the library is loaded here, since a forked child should load nothing. To be used on the thread that lasts:
    the kernel watches the thread that forked.
    """
    library = ctypes.CDLL(None)
    parent = os.getpid()

    def prepare() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # gone before the kernel knew whom to watch
            os._exit(1)

    return prepare
