#!/usr/bin/env python
"""How do I run a command of the example project? `python manage.py help` lists them."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    if sys.argv[1:2] == ["demo"]:
        os.environ.setdefault("DEBUG", "1")  # there to be looked at; everything else is safe unless told otherwise
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as wrong:
        sys.exit(f"Not started: {wrong}")


if __name__ == "__main__":
    main()
