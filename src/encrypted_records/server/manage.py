"""Django's management commands: ``python -m encrypted_records.server.manage makemigrations``."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "encrypted_records.server.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
