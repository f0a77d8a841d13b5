"""Our own pairs: the only place that imports both model packages.

In a wheel the models lie beside the engine, where no project finds them by accident; who imports this asks for them.
"""

import sys
from pathlib import Path

_TWINS = Path(__file__).parents[1] / "_twins"

if _TWINS.is_dir() and str(_TWINS) not in sys.path:
    sys.path.append(str(_TWINS))
