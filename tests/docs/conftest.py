import os
import sys
from pathlib import Path

import pytest


@pytest.fixture
def users_shell():
    """The environment of a user's shell: commands of this Python's environment first, no settings of the tests."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "PYTEST"))
    }
    return {**kept, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"}
