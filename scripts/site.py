"""Build the documents as a site: ``python -m scripts.site FOLDER``, or ``make docs``.

Every warning is an error: a link or an anchor that leads nowhere, a document that no list has.
"""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, ConfigurationError

ROOT = Path(__file__).parents[1]


def copy_documents(target: Path) -> None:
    """The documents in one folder, each at the path that it has in the project."""
    shutil.copytree(ROOT / "docs", target / "docs", dirs_exist_ok=True)
    for path in ROOT.glob("*.md"):
        shutil.copy(path, target)


def build_site(source: Path, folder: Path) -> None:
    """Build into ``folder`` what :func:`copy_documents` put into ``source``.

    Raises:
        Abort: something in the documents leads nowhere; the log has said what.
    """
    config = load_config(
        str(ROOT / "mkdocs.yml"), docs_dir=str(source), site_dir=str(folder), strict=True
    )
    config.plugins.on_startup(command="build", dirty=False)
    build(config)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m scripts.site FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0]).absolute()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        with TemporaryDirectory() as scratch:
            copy_documents(Path(scratch))
            build_site(Path(scratch), folder)
    except (Abort, ConfigurationError) as error:
        print(f"error: the site was not built: {error}", file=sys.stderr)
        return 1
    print(f"the site is in {folder}; open index.html, or: python -m http.server -d {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
