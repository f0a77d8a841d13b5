"""A kernel applied by einsum.

B batch, T position; the other letters are named by each equation.
"""

from flax import linen as nn

from models_nnx import ops
from models_nnx.config import ModelConfig

__all__ = ["Linear"]


class Linear(nn.Module):
    """``einsum(equation, x, kernel)`` in the compute dtype, constrained to ``out_axes``.

    Args:
        config: dtypes and rules.
        equation: ``"BTD,DNH->BTNH"``; kernel letters missing from the output are contracted.
        shape: shape of the kernel.
        axes: logical axes of the kernel.
        out_axes: logical axes of the output.
    """

    config: ModelConfig
    equation: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    out_axes: tuple[str | None, ...]

    def setup(self):
        init = nn.with_logical_partitioning(ops.kernel_init(self.equation), self.axes)
        self.kernel = self.param("kernel", init, self.shape, self.config.param_dtype)

    def __call__(self, x):
        kernel = self.kernel.astype(self.config.compute_dtype)
        return ops.einsum(self.equation, x, kernel, out_axes=self.out_axes, rules=self.config.rules)
