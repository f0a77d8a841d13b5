"""A kernel applied by einsum, with or without a bias.

B batch, T position; the other letters are named by each equation.
"""

from flax import nnx

from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig
from models_nnx.state import param

__all__ = ["BiasedLinear", "Linear"]


class Linear(nnx.Module):
    """``einsum(equation, x, kernel)`` in the compute dtype, constrained to ``out_axes``.

    Args:
        config: dtypes and rules.
        equation: ``"BTD,DNH->BTNH"``; kernel letters missing from the output are contracted.
        shape: shape of the kernel.
        axes: logical axes of the kernel.
        out_axes: logical axes of the output.
        rngs: keys to initialise from.
    """

    def __init__(self, config: ModelConfig, equation: str, *, shape, axes, out_axes, rngs: PathRngs):
        self.config, self.equation, self.out_axes = config, equation, out_axes
        init = ops.kernel_init(equation)
        self.kernel = param(init(rngs.draw("params"), shape, config.param_dtype), axes)

    def __call__(self, x):
        kernel = self.kernel.astype(self.config.compute_dtype)
        return ops.einsum(self.equation, x, kernel, out_axes=self.out_axes, rules=self.config.rules)


class BiasedLinear(Linear):
    """A `Linear` with a bias, which has the kernel's axes that the output keeps."""

    def __init__(self, config: ModelConfig, equation: str, *, shape, axes, out_axes, rngs: PathRngs):
        super().__init__(config, equation, shape=shape, axes=axes, out_axes=out_axes, rngs=rngs)
        init, shape = nnx.initializers.zeros, ops.bias_shape(equation, shape)
        axes = ops.bias_axes(equation, axes)
        self.bias = param(init(rngs.draw("params"), shape, config.param_dtype), axes)

    def __call__(self, x):
        return ops.add_bias(super().__call__(x), self.bias[...], self.out_axes, self.config.rules)
