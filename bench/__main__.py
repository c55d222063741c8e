"""How is everything measured? One section after the other, each in a process of its own; then the page is renewed.

python -m bench [section ...]
"""

from __future__ import annotations

import subprocess
import sys
import time

from bench import page
from bench.alone import say


def main() -> None:
    sections = sys.argv[1:] or list(page.SECTIONS)
    if unknown := set(sections) - set(page.SECTIONS):
        raise SystemExit(f"No such section: {', '.join(sorted(unknown))}. There are: {', '.join(page.SECTIONS)}.")
    failed = []
    for section in sections:
        began = time.monotonic()
        say(f"\n=== {section}\n")
        if subprocess.run([sys.executable, "-m", f"bench.{section}"], check=False).returncode:
            failed.append(section)
        say(f"\n=== {section}: {time.monotonic() - began:.0f} s")
    page.main()
    if failed:
        raise SystemExit(f"Failed: {', '.join(failed)}; their figures are the old ones.")


if __name__ == "__main__":
    main()
