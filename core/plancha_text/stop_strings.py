"""Finds stop strings in text that arrives in pieces, and says how much of it may be shown."""


class StopMatcher:
    """Matches character by character, so where the text is cut does not depend on the pieces.

    Of several stop strings the one completed first counts; of those completed by one character
    the longest. Knuth, Morris and Pratt (1977) for each: linear in the text, whatever the strings.
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._patterns = tuple(_Pattern(text) for text in stop)
        self._first = frozenset(text[0] for text in stop)
        self._held = ""
        self.matched = False

    def push(self, text: str, counts: bool) -> str:
        """What can be shown now. A match completed while not `counts` is passed over.

        On a match, `matched` is set, and nothing after the text before it is ever shown.
        """
        if self.matched:
            return ""
        if not self._held and self._first.isdisjoint(text):
            return text
        known = self._held + text
        for end, character in enumerate(text, start=len(self._held) + 1):
            completed = 0
            for pattern in self._patterns:
                if pattern.advance(character):
                    completed = max(completed, len(pattern.text))
            if completed and counts:
                self.matched, self._held = True, ""
                return known[: end - completed]
        undecided = max(pattern.length for pattern in self._patterns)
        shown = known[: len(known) - undecided]
        self._held = known[len(shown) :]
        return shown

    def finish(self) -> str:
        """What was held back: nothing follows that could complete it."""
        held, self._held = self._held, ""
        return held


class _Pattern:
    """One stop string; `length` characters of it are what the text so far ends with."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.length = 0
        self._borders = [0, 0]  # by length of a prefix; made no longer than a match ever was

    def advance(self, character: str) -> bool:
        """Take the next character; true when it completes the string."""
        text, length = self.text, self.length
        while length and text[length] != character:
            length = self._border(length)
        if text[length] == character:
            length += 1
        complete = length == len(text)
        self.length = self._border(length) if complete else length
        return complete

    def _border(self, length: int) -> int:
        """The longest proper prefix of the first `length` characters that is also their suffix."""
        text, borders = self.text, self._borders
        for known in range(len(borders), length + 1):
            border = borders[known - 1]
            while border and text[border] != text[known - 1]:
                border = borders[border]
            borders.append(border + (text[border] == text[known - 1]))
        return borders[length]
