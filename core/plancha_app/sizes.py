"""Numbers as people read them."""


def size_text(count: int) -> str:
    """Bytes in powers of ten, as disks and downloads have them: 98 MB."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            value = count / scale
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.2g} {unit}"
    return f"{count} B"


def count_text(value: float) -> str:
    """1,234 and 45.3k and 6.78M: at most five characters where it is no small number."""
    for suffix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if value >= scale:
            return f"{_three(value / (1e3 if suffix == 'k' else scale))}{suffix}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}".removesuffix(".0")


def seconds_text(seconds: float | None) -> str:
    """12 ms, 1.24 s, 3 m 20 s, 4 h 12 m; a dash where there is none."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{_three(seconds * 1e3)} ms"
    if seconds < 99.95:
        return f"{_three(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} m"
    return f"{hours // 24} d {hours % 24} h"


def _three(value: float) -> str:
    """Three digits: 1.23, 12.3, 123."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
