"""A kernel applied by einsum, with or without a bias.

B batch, T position; the other letters are named by each equation.
"""

from flax import linen as nn

from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig

__all__ = ["BiasedLinear", "Linear"]


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


class BiasedLinear(Linear):
    """A `Linear` with a bias, which has the kernel's axes that the output keeps."""

    def setup(self):
        super().setup()
        init = nn.with_logical_partitioning(nn.initializers.zeros, ops.bias_axes(self.equation, self.axes))
        shape = ops.bias_shape(self.equation, self.shape)
        self.bias = self.param("bias", init, shape, self.config.param_dtype)

    def __call__(self, x):
        return ops.add_bias(super().__call__(x), self.bias, self.out_axes, self.config.rules)
