"""The reference of all commands in docs/cli.md, made of what the commands say of themselves.

``python -m tests.cli.reference`` writes it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from tests.cli.tree import commands

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
#: What is below this line is generated.
TITLE = "## Reference\n"
#: An option that so many commands have is explained once.
_SHARED_BY = 10

Options = dict[str, str]


def reference() -> str:
    """The section from its title on."""
    known = [(path, command, options(command)) for path, command in commands()]
    counted = Counter(pair for _, _, own in known for pair in own.items())
    shared = {pair for pair, count in counted.items() if count >= _SHARED_BY}
    lines = [
        TITLE,
        "The `--help` of every command. These options have the same meaning everywhere:",
        "",
    ]
    lines += [_explained(*pair) for pair in sorted(shared)]
    for path, command, own in known:
        lines += ["", *_section(path, command, own, shared)]
    return "\n".join(lines) + "\n"


def _section(
    path: str, command: click.Command, own: Options, shared: set[tuple[str, str]]
) -> Iterator[str]:
    yield from (f"### {path}", "", usage(path, command), "", command.get_short_help_str(200))
    told = [_explained(*pair) for pair in own.items() if pair not in shared]
    if told:
        yield from ("", *told)
    others = [f"`{_flag(form)}`" for form, text in own.items() if (form, text) in shared]
    if others:
        yield from ("", f"Also {', '.join(others)}.")


def usage(path: str, command: click.Command) -> str:
    return f"`{' '.join([path, *command.collect_usage_pieces(_context(path, command))])}`"


def options(command: click.Command) -> Options:
    """What ``--help`` says of each option: how it is written, and what it means."""
    context = _context("", command)
    found = (param.get_help_record(context) for param in command.get_params(context))
    # An argument without a word of its own stands in the usage line.
    return {form: text for form, text in filter(None, found) if text}


def _context(path: str, command: click.Command) -> click.Context:
    return click.Context(command, info_name=path, help_option_names=["-h", "--help"])


def _explained(form: str, text: str) -> str:
    return f"- `{form}`: {text}"


def _flag(form: str) -> str:
    return form.partition(", ")[2].split()[0] if ", " in form else form.split(maxsplit=1)[0]


if __name__ == "__main__":
    text = DOCUMENT.read_text()
    DOCUMENT.write_text(text.partition(TITLE)[0] + reference())
