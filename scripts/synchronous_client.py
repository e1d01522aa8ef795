"""The synchronous client, made of the asynchronous one: the same, but each answer is waited for.

``python -m scripts.synchronous_client`` writes it again. What is awaited of the proxy, or of the
names there, is run by the link; everything else that was waited for waits by itself now.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from encrypted_records.client.sdk import async_client

SOURCES = sorted(Path(async_client.__file__).parent.glob("async_*.py"))
RUFF = Path(sys.executable).with_name("ruff")
_MODULES = "encrypted_records.client.sdk.async_"
_TITLE = '''"""{}

Made of ``{}`` by ``python -m scripts.synchronous_client``; change it there.
"""
'''
#: What the rules say of these names was allowed in the source, where comments are.
_ALLOWED = "# ruff: noqa: A002, UP028"
_SPECIAL = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "count_all": "__len__",
}


def _renamed(name: str) -> str:
    if name in _SPECIAL:
        return _SPECIAL[name]
    for prefix, plain in (("_Async", "_"), ("Async", ""), ("async_", "")):
        if name.startswith(prefix):
            return plain + name.removeprefix(prefix)
    return name


def _is_the_proxys(called: ast.expr) -> bool:
    """Whether an expression begins with ``self._link.proxy`` or ``self._link.names``."""
    return ast.unparse(called).startswith(("self._link.proxy.", "self._link.names."))


def _by_link(method: str, asked: ast.expr) -> ast.expr:
    link = ast.Attribute(ast.Name("self"), "_link")
    return ast.Call(ast.Attribute(link, method), [asked], [])


class _Waiting(ast.NodeTransformer):
    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        members = {name: getattr(node, name) for name in node._fields}
        return self.visit_FunctionDef(ast.FunctionDef(**members | {"name": _renamed(node.name)}))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        proxys = _is_the_proxys(node.value)
        asked = self.visit(node.value)
        return _by_link("run", asked) if proxys else asked

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        proxys = _is_the_proxys(node.iter)
        self.generic_visit(node)
        each = _by_link("each", node.iter) if proxys else node.iter
        return ast.For(node.target, each, node.body, node.orelse)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        return ast.comprehension(node.target, node.iter, node.ifs, 0)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = _renamed(node.name)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(_renamed(node.id), node.ctx)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        self.generic_visit(node)
        if node.module is not None and node.module.startswith(_MODULES):
            node.module = node.module.replace(".async_", ".sync_")
        return node

    def visit_alias(self, node: ast.alias) -> ast.AST:
        return ast.alias(_renamed(node.name))


def target_of(source: Path) -> Path:
    """The module that is made of ``source``."""
    return source.with_name(source.name.replace("async_", "sync_"))


def synchronous_client(source: Path) -> str:
    """The text of the module that is made of ``source``."""
    module = ast.parse(source.read_text())
    summary = (ast.get_docstring(module) or "").partition("\n\n")[0]
    tree = _Waiting().visit(module)
    tree.body = tree.body[1:]
    title = _TITLE.format(re.sub(r"\bAsync(?=[A-Z])", "", summary), source.name)
    text = f"{title}\n{_ALLOWED}\n\n{ast.unparse(ast.fix_missing_locations(tree))}"
    for command in ("check --fix-only --fixable I,F401,RUF100", "format"):
        text = subprocess.run(
            [RUFF, *command.split(), "--quiet", "--stdin-filename", target_of(source), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


if __name__ == "__main__":
    for each in SOURCES:
        target_of(each).write_text(synchronous_client(each))
