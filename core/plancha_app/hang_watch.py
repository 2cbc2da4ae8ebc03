"""Whether a process's event loop still turns, which its parent can tell by its signs of life."""

LOOKS = 8
"""Within the time for which it may be silent: its parent looks so often, and it gives as many."""

STARTING_S = 60.0
"""What a process may take at least to say its first word: a cold disk's imports go before it."""


def interval_s(timeout_s: float) -> float:
    """Between two looks, and between two signs of life."""
    return timeout_s / LOOKS


class HangWatch:
    """One process, told of all it says and of each look; `timeout_s` is more than 0.

    It counts looks and no seconds, so that no process is taken for hung since its parent, or the
    whole machine, stood still.
    """

    def __init__(self, timeout_s: float) -> None:
        self._left = round(LOOKS * max(1.0, STARTING_S / timeout_s))

    def heard(self) -> None:
        """It said something."""
        self._left = LOOKS

    def look(self) -> bool:
        """Whether it hangs: nothing was heard for `timeout_s`, and at most two intervals more."""
        self._left -= 1
        return self._left < 0
