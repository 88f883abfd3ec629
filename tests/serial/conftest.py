"""The extreme files are a module of this folder: a program of their own imports them too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
