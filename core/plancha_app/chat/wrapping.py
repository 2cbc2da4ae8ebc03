"""Text that comes in pieces, broken between words at the terminal's edge; code stays as it is."""

from rich.cells import cell_len

FENCE = "```"
ERASE_LINE = "\x1b[K"


class Wrapping:
    """Turns pieces into what is to be written; each appears at once, and a word may move down.

    The terminal's cursor must be where the last piece left it.
    """

    def __init__(self) -> None:
        self._column = 0
        self._word = ""  # what has been written since the last space
        self._word_columns = 0
        self._line = ""  # what it begins with: enough to know a fence
        self._in_code = False

    def wrap(self, piece: str, width: int) -> str:
        """For a terminal of `width` columns."""
        return "".join(self._next(character, width) for character in piece)

    def _next(self, character: str, width: int) -> str:
        if character == "\n":
            self._end_line()
            return character
        if len(self._line) < len(FENCE) and not (character == " " and not self._line):
            self._line += character
        if character == " ":
            return self._space(width)
        columns = cell_len(character)
        self._column += columns
        self._word += character
        self._word_columns += columns
        if self._column <= width or self._in_code or self._word_columns >= width:
            return character
        return self._word_moves_down(columns)

    def _space(self, width: int) -> str:
        """One that comes just at the edge is the line's end."""
        self._word, self._word_columns = "", 0
        if self._column >= width and not self._in_code:
            self._column = 0
            return "\n"
        self._column += 1
        return " "

    def _word_moves_down(self, columns: int) -> str:
        """Its last character, of so many columns, has not been written yet, the rest has."""
        written = self._word_columns - columns
        self._column = self._word_columns
        back = f"\x1b[{written}D{ERASE_LINE}" if written else ""
        return f"{back}\n{self._word}"

    def _end_line(self) -> None:
        if self._line == FENCE:
            self._in_code = not self._in_code
        self._column, self._line = 0, ""
        self._word, self._word_columns = "", 0
