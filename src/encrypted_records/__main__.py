"""The program ``ers``, and ``python -m encrypted_records``.

Scripts ask for the version often, and the import of the argument parser is slow. Therefore the
version is printed without it.
"""

import sys
from contextlib import suppress

from encrypted_records import __version__


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        with suppress(OSError, AttributeError):  # else the command reports the fault of stdout
            sys.stdout.write(f"ers, version {__version__}\n")
            sys.stdout.flush()
            return
    from encrypted_records.cli.main import main as run  # noqa: PLC0415 - see above

    run()


if __name__ == "__main__":
    main()
