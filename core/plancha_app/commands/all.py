"""Every command of `plancha`."""

from importlib.metadata import version

from cyclopts import App, Parameter

from plancha_app.commands.bench import bench
from plancha_app.commands.chat import chat
from plancha_app.commands.completion import completion
from plancha_app.commands.config import config
from plancha_app.commands.help_page import epilogue
from plancha_app.commands.keys import keys
from plancha_app.commands.ledger import ledger
from plancha_app.commands.plugins import plugins
from plancha_app.commands.pull import pull
from plancha_app.commands.selftest import selftest
from plancha_app.commands.serving import check, serve
from plancha_app.commands.top import top

app = App(
    name="plancha",
    version=lambda: version("plancha"),
    help="Serve large language models: continuous batching, paged KV cache, plugins.",
    help_format="plaintext",
    default_parameter=Parameter(negative_iterable=()),
    help_epilogue=epilogue(
        ("plancha serve", "a small model on http://127.0.0.1:8000"),
        ("plancha chat", "talk to it, from another terminal"),
        ("plancha top", "watch it"),
        ("plancha serve --help", "every command has examples of its own"),
        codes="1 it failed; 2 mistyped, or a mistake in a file;\n130 interrupted.",
    ),
)

COMMANDS = (
    *(serve, chat, top, pull, check, config, plugins),
    *(keys, ledger, bench, selftest, completion),
)
"""In the order in which somebody needs them."""

for place, command in enumerate(COMMANDS):
    command.sort_key = place
    app.command(command)
