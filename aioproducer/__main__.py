"""`python -m aioproducer` is the command `aioproducer`."""

from __future__ import annotations

from aioproducer.cli import main

if __name__ == "__main__":
    main()
