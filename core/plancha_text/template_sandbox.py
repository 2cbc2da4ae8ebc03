"""Where chat templates run: Jinja's sandbox, in which no operation may take too much.

A template comes with a model's files and is nobody's trusted code. Jinja's sandbox keeps it from
the interpreter; here every loop, call, filter and operator also asks the `Budget`. What remains:
one single operation may take as long as sorting or comparing values of the largest size does
(a second or two for a request of many megabytes), and the deadline is seen only after it.
"""

import types
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import Template, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from plancha_text.template_budget import budget
from plancha_text.template_functions import FILTERS, GLOBALS, REMOVED_FILTERS, within_budget
from plancha_text.template_sizes import admit_method, binop_size, format_size

_METHODS = (types.BuiltinMethodType, types.MethodType)
_PLAIN = (str, int, float, types.NoneType)
_NO_METHODS = ("encode", "translate", "maketrans", "expandtabs")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Compiles and runs templates as Hugging Face's `apply_chat_template` does, within a budget."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            optimized=False,  # or constant expressions would be computed without a budget
            finalize=_finalize,
        )
        self.filters.update(FILTERS)
        for name in REMOVED_FILTERS:
            del self.filters[name]
        self.filters = {name: within_budget(name, each) for name, each in self.filters.items()}
        self.globals = {"range": self.globals["range"], **GLOBALS}
        setattr(self, "concat", _concatenate)  # noqa: B010 - it is no method in Jinja either

    def compile_checked(self, source: str, literal: Callable[[str], str]) -> Template:
        """The template, with `literal` applied to every text of its own.

        Raises `jinja2.TemplateSyntaxError`.
        """
        tree = _Checked(self, literal).visit(self.parse(source))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # about `1[0]`, say: it fails when run
            code = self.compile(tree)
        return Template.from_code(self, code, self.globals)

    def tick(self) -> None:
        """Called by every turn of every loop; `call` does the work."""

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Every call that a template makes."""
        budget().tick()
        if isinstance(obj, _METHODS) and isinstance(obj.__self__, str):
            args = admit_method(obj.__self__, obj.__name__, args)
        return budget().made(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Every `+`, `*`, `**` and `%`."""
        budget().tick()
        size = binop_size(operator, left, right)
        budget().admit(size)
        return budget().made(super().call_binop(context, operator, left, right), size)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Numbers have none (`to_bytes` makes any length), texts none that blow up."""
        if isinstance(obj, int | float | bytes) or attr in _NO_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format`, which Jinja hands out in a wrapper of its own."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            budget().admit(format_size(value.__self__, [args, kwargs]))
            return wrapped(*args, **kwargs)

        return formatted


def _finalize(value: Any) -> Any:
    """Everything that is written: its text may be as long as it is large."""
    budget().tick()
    if isinstance(value, _PLAIN):
        return value
    return budget().made(str(value), budget().size(value))


def _concatenate(parts: Iterable[str]) -> str:
    """The text of a macro or block."""
    texts = list(parts)
    size = sum(map(len, texts))
    budget().admit(size)
    return str(budget().made("".join(texts), size))


class _Checked(NodeTransformer):
    """Puts checks where Jinja has no hook: loops call, `~` adds, and what nests is measured."""

    def __init__(self, environment: TemplateSandbox, literal: Callable[[str], str]) -> None:
        self._environment = environment
        self._literal = literal

    def visit_Const(self, node: nodes.Const) -> nodes.Const:
        if isinstance(node.value, str):
            node.value = self._literal(node.value)
        return node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.TemplateData:
        node.data = self._literal(node.data)
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        tick = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
        node.body.insert(0, self._placed(nodes.ExprStmt(tick), node))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        joined, *others = (self._filtered(part, "string") for part in node.nodes)
        for other in others:
            joined = self._placed(nodes.Add(joined, other), node)
        return joined

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return self._filtered(node, "made") if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._measured(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._measured(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self._measured(node) if node.ctx == "load" else node

    def _measured(self, node: nodes.Node) -> nodes.Node:
        self.generic_visit(node)
        return self._filtered(node, "made")

    def _filtered(self, node: nodes.Node, name: str) -> nodes.Node:
        return self._placed(nodes.Filter(node, name, [], [], None, None), node)

    def _placed(self, new: nodes.Node, at: nodes.Node) -> nodes.Node:
        return new.set_lineno(at.lineno).set_environment(self._environment)


class _Generation(Extension):
    """`{% generation %}`: marks the assistant's words for training, and means nothing here."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
