"""The built-in pairs: the only package that imports both model packages.

A wheel stores the models outside the import path, so that no project imports them by accident; this package adds them.
"""

import sys
from pathlib import Path

_TWINS = Path(__file__).parents[1] / "_twins"

if _TWINS.is_dir() and str(_TWINS) not in sys.path:
    sys.path.append(str(_TWINS))
