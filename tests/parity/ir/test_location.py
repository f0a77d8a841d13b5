"""An operation has equal source lines in the traced and in the lowered program, also inside cached traces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.ir.functions import short_path
from parity.ir.interpreter import Interpreter, Position
from parity.ir.jaxprs import bind
from parity.ir.location import (
    Frame,
    SourceLocation,
    equation_source,
    inlined_source,
    operation_source,
)
from parity.ir.stablehlo.reader import read_program

X = np.linspace(-1, 1, 3, dtype="float32")


@jax.custom_jvp
def act(x):
    return jnp.where(x > 0, x, 0.0) * 2


act.defjvps(lambda tangent, _, x: tangent * x)


def inner(x):
    return act(jnp.sin(x))


@jax.jit
def own(x):
    return inner(x) * 2


def step(x):
    return jnp.sum(own(x)) + jnp.sum(jax.checkpoint(inner)(x))


class Sources(Interpreter):
    """Collects the source of each operation of a program."""

    def __init__(self):
        self.found = []

    def operation(self, equation, inputs, here):
        self.found.append((equation.primitive.name, equation_source(equation, here.calls)))
        return bind(equation, inputs)


def traced(function, *arguments):
    sources = Sources()
    sources.body(jax.make_jaxpr(function)(*arguments), arguments, Position())
    return sources.found


def lowered(function, *arguments):
    program = read_program(jax.jit(function).lower(*arguments))
    return [(op.form.name, inlined_source(op)) for op in program.body.ops]


@pytest.mark.parametrize("read", [traced, lowered])
def test_an_operation_of_a_kept_trace_comes_from_the_call_that_leads_there(read):
    found = [source for _, source in read(jax.grad(step), X)]
    through = [source for source in found if any(frame.function == "own" for frame in source.frames)]
    direct = [source for source in found if source not in through]
    assert through and direct
    for source in through:
        assert any(frame.function == "step" for frame in source.frames), source
    lines = {(frame.function, frame.line) for source in direct for frame in source.own}
    assert any(function == "inner" for function, _ in lines), lines
    assert not any(function == "own" for function, _ in lines), lines


def test_lines_beyond_the_called_function_are_those_of_its_first_caller():
    borrowed = SourceLocation("sin", (Frame("m.py", 3, "f"), Frame("m.py", 9, "first")))
    call = SourceLocation("jit(step)/jit(f)", (Frame("m.py", 20, "second"),))
    found = borrowed.called_by(call)
    assert [frame.line for frame in found.frames] == [3, 20]
    assert found.stack == "jit(step)/jit(f)/sin"
    library = SourceLocation("add", (Frame("m.py", 9, "first"),)).called_by(call)
    assert [frame.line for frame in library.frames] == [20]
    mapped = SourceLocation("jit(step)/transpose(vmap(jit(f)))", call.frames)
    assert [frame.line for frame in borrowed.called_by(mapped).frames] == [3, 20]
    loop = SourceLocation("step/while", (Frame("m.py", 20, "second"),))
    assert [frame.line for frame in borrowed.called_by(loop).frames] == [3, 9, 20]


def test_both_programs_name_the_same_lines():
    def lines(found):
        return {(frame.function, frame.line) for _, source in found for frame in source.own}

    left, right = lines(traced(step, X)), lines(lowered(step, X))
    functions = {"act", "inner", "own", "step"}
    assert {each for each in left if each[0] in functions} == {each for each in right if each[0] in functions}


def test_a_location_without_lines_is_its_name_stack():
    module = jax.jit(lambda x: jnp.sin(x)).lower(X).compiler_ir("stablehlo")
    (operation, _) = module.body.operations[0].regions[0].blocks[0].operations
    source = operation_source(operation)
    assert source.stack.endswith("/sin") and source.frame.file == __file__, source
    assert str(SourceLocation(stack=source.stack)) == source.stack
    assert str(source).startswith(short_path(__file__))
    assert str(SourceLocation()) == "unknown place"


def test_a_place_of_one_side_names_the_caller_outside_of_its_class():
    norm = [Frame("norms.py", 3, "Norm.scaled"), Frame("norms.py", 9, "Norm.__call__")]
    wrapper, caller = Frame("wrap.py", 5, "wrap.<locals>.wrapped"), Frame("model.py", 20, "Layer.__call__")
    assert SourceLocation(frames=(*norm, wrapper, caller)).against(None) == (
        "norms.py:3 in Norm.scaled, called at model.py:20 in Layer.__call__"
    )
    assert SourceLocation(frames=tuple(norm)).against(None) == "norms.py:3 in Norm.scaled"
    assert SourceLocation("sin").against(None) == "sin"


@pytest.mark.parametrize(
    ("below", "place"),
    [
        (["optax/a.py"], "model.py:1 in step (through optax/a.py:1 in made)"),
        (["flax/a.py", "models/b.py"], "model.py:1 in step, through models/b.py:1 in made"),
    ],
)
def test_a_place_names_a_library_that_may_be_compared_before_a_framework(below, place):
    library = [Frame(f"/venv/site-packages/{file}", 1, "made") for file in below]
    assert SourceLocation(frames=(*library, Frame("model.py", 1, "step"))).own_place == place
