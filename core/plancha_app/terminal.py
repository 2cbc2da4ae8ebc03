"""SIGHUP says two things: read the file again, or the terminal is gone. Which one it is."""

import os
import signal


class Terminal:
    """The terminal that the process was started from, if it was from one and should end with it."""

    def __init__(self) -> None:
        # Under nohup the signal is ignored: the process is meant to outlive its terminal.
        outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._had_one = _is_there() and not outlives

    def hung_up(self) -> bool:
        """Whether it has been closed since."""
        return self._had_one and not _is_there()


def _is_there() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
