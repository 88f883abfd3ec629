"""``python -m regluon`` is the ``regluon`` command."""

from __future__ import annotations

from .cli import main

main()
