"""One text of figures made of several processes', each sample with a label that says whose it is.

In Prometheus' text format 0.0.4, as `prometheus_client` writes it: every family begins with its
`# HELP` and `# TYPE`, and is there once.
"""

from collections.abc import Mapping

import attrs


@attrs.define
class _Family:
    headers: dict[str, str] = attrs.field(factory=dict)  # by kind, of the first who has one
    samples: list[str] = attrs.field(factory=list)


def labelled(label: str, texts: Mapping[str, str]) -> str:
    """The families of all texts, each once; a text's key is the label's value in its samples."""
    families: dict[str, _Family] = {}
    for value, text in texts.items():
        family = _Family()
        for line in text.splitlines():
            if line.startswith("# "):
                _, kind, name, *_ = line.split(" ", 3)
                family = families.setdefault(name, _Family())
                family.headers.setdefault(kind, line)
            elif line:
                family.samples.append(_with_label(line, f'{label}="{value}"'))
    lines = (line for each in families.values() for line in (*each.headers.values(), *each.samples))
    return "".join(f"{line}\n" for line in lines)


def family(name: str, kind: str, about: str, label: str, samples: Mapping[str, float]) -> str:
    """One family of a sample for each value of the label."""
    told = (f'{name}{{{label}="{value}"}} {number}\n' for value, number in samples.items())
    return "".join((f"# HELP {name} {about}\n", f"# TYPE {name} {kind}\n", *told))


def _with_label(sample: str, label: str) -> str:
    name, brace, rest = sample.partition("{")
    if brace:
        return f"{name}{{{label}{'' if rest.startswith('}') else ','}{rest}"
    name, _, value = sample.partition(" ")
    return f"{name}{{{label}}} {value}"
