"""The templates of the pages, and what they may use."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from encrypted_records.proxy.pages import formatting, static_files, wording
from encrypted_records.proxy.pages.help_targets import find_help
from encrypted_records.proxy.pages.search_form import example_of
from encrypted_records.proxy.pages.widgets import widget_of

templates = Environment(
    loader=PackageLoader("encrypted_records.proxy.pages"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
    # Otherwise each page asks the disk whether each of its templates has changed.
    auto_reload=False,
)
templates.filters |= formatting.FILTERS
templates.filters |= {"said": wording.said_of, "flaws_of": wording.flaws_of}
templates.globals |= {"static": static_files.address_of, "find_help": find_help}
templates.globals |= {"widget_of": widget_of, "example_of": example_of}
