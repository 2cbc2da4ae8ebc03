"""What to ask of a server, and how fast."""

from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Parameter
from cyclopts.validators import Number

Count = Annotated[int, Parameter(validator=Number(gte=1))]
Positive = Annotated[float, Parameter(validator=Number(gt=0))]


@attrs.frozen(kw_only=True)
class Job:
    """The load of one run. Without `rate` or `trace` it is a closed loop: a new request per answer.

    Parameters
    ----------
    model
        What requests ask for; without it, the first model the server lists.
    requests
        How many to send; of a trace, the first so many.
    concurrency
        Closed loop: how many are under way at any time. Open loop: no limit.
    rate
        Open loop: requests a second, arriving at random (Poisson).
    trace
        Open loop by a file: CSV with TIMESTAMP, ContextTokens, GeneratedTokens (Azure), or JSON
        lines with timestamp (ms), input_length, output_length (Mooncake).
    speed
        How much faster than recorded a trace is played.
    longest
        Cut the prompts and outputs of a trace to so many tokens.
    prompt_tokens
        Lengths of the prompts, separated by commas, taken in turn.
    output_tokens
        Lengths of the outputs, separated by commas, taken in turn.
    text
        Send prompts as words, each about a token, instead of as token ids.
    ignore_eos
        Ask for outputs of exactly the length wanted; a field that not every server knows.
    seed
        Of prompts and arrivals.
    timeout_s
        How long a server may be silent before a request counts as failed.
    key_file
        A file that holds the API key; else it is what OPENAI_API_KEY says.
    out
        Write one JSON object a request to this file, for `compare` and `plot`.
    plot
        Draw the result into this file, a .png or .svg; needs the extra "plot".
    json
        Print the summary as one object instead of a table.
    """

    model: str | None = None
    requests: Count = 128
    concurrency: Count = 32
    rate: Positive | None = None
    trace: Path | None = None
    speed: Positive = 1.0
    longest: Count = 4096
    prompt_tokens: str = "128"
    output_tokens: str = "16,32,64,128"
    text: Annotated[bool, Parameter(negative=(), show_default=False)] = False
    ignore_eos: bool = True
    seed: int = 0
    timeout_s: Positive = 600.0
    key_file: Path | None = None
    out: Path | None = None
    plot: Path | None = None
    json: Annotated[bool, Parameter(negative=(), show_default=False)] = False
