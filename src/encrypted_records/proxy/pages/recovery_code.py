"""The words of a keyring as a QR code: inline SVG without styles, which the pages'
Content-Security-Policy would refuse.

The code contains the words in plain text, separated by spaces, so that any code reader can type
them into the form. The code is as secret as the words.
"""

from __future__ import annotations

import segno
from markupsafe import Markup

#: Light modules around the code, without which readers do not find it (ISO/IEC 18004).
QUIET_MODULES = 4


def draw_code(phrase: str) -> Markup:
    """An ``svg`` of the class ``code-modules``, which is read also where a sixth of it is lost."""
    code = segno.make(phrase, error="m", micro=False)
    # Always dark on light: readers may not know the other way round.
    drawn = code.svg_inline(
        border=QUIET_MODULES,
        dark="#000",
        light="#fff",
        omitsize=True,
        svgclass="code-modules",
        lineclass=None,
    )
    return Markup(drawn)  # noqa: S704 - numbers alone, whatever the words are
