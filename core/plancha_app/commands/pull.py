"""`plancha pull`."""

from typing import Annotated

from cyclopts import App, Parameter

from plancha_app.commands.help_page import Flag, epilogue
from plancha_app.complaints import Mistake

pull = App(
    name="pull",
    help_epilogue=epilogue(
        ("plancha pull smollm2", "a small one"),
        ("plancha pull hf:Qwen/Qwen3-0.6B", "from the Hugging Face hub"),
        ("plancha pull hf:org/name/model.Q4_K_M.gguf", "one file of several"),
        ("plancha pull --list", "what is in the cache"),
        codes="1 it cannot be had; 2 mistyped; 130 interrupted.",
    ),
)


@pull.default
def fetch(
    model: str | None = None,
    /,
    *,
    list_: Annotated[Flag, Parameter(name="--list")] = False,
    json: Flag = False,
) -> int:
    """Fetch a model into the cache, where a later start finds it.

    What is there already is checked again; of the hub's models, what is new is
    fetched.

    Parameters
    ----------
    model
        A built-in name, hf:org/name, or a path, which is only looked for.
    list_
        Show what is in the cache instead.
    json
        Print an object with name, path and size.
    """
    from plancha_app.pulling import show_cache, show_pulled

    if list_:
        if model is not None:
            raise Mistake("--list takes no model")
        return show_cache(as_json=json)
    if model is None:
        raise Mistake("name a model, such as smollm2 or hf:org/name; --list shows those there are")
    return show_pulled(model, as_json=json)
