"""JAX set-up for every test session; it must run before the first ``import jax``."""

import gc
import os
from importlib import metadata

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "true")
_FLAGS = {"--xla_force_host_platform_device_count": "8"}
if metadata.version("jaxlib").startswith("0.10."):
    # Compiles three times as fast; later versions have no such flag, and XLA ends a process that names an unknown one.
    _FLAGS["--xla_cpu_use_fusion_emitters"] = "false"
for _flag, _value in _FLAGS.items():
    if _flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_flag}={_value}".strip()

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")

# Traces are millions of objects that live on: by default a tenth of the time goes into looking for garbage among them.
gc.set_threshold(1_000_000, *gc.get_threshold()[1:])
