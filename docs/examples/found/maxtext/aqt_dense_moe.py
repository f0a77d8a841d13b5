"""AQT int8 with dense experts: NNX does not trace."""

from small import SIDES, traced

for name, is_nnx in SIDES.items():
    try:
        print(name, "traces", len(traced(is_nnx, "model_name=mixtral-8x7b", "quantization=int8")) > 0)
    except Exception as error:  # the difference
        print(name, type(error).__name__)
