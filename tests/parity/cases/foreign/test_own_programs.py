"""Custom programs: a `TrainState` against `nnx.Optimizer`, pure states, averages, a cache, a refactor."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState

import parity
from parity.channels import ALL
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.run.request import Request
from parity.run.run import case_runner

B, T, D, H, F = 4, 5, 12, 6, 3
ADAM = optax.adam(1e-2)


class LinenMlp(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.LayerNorm()(jnp.tanh(linen.Dense(D)(x)))
        return linen.Dense(F)(jnp.tanh(linen.Dense(D)(x)))


class NnxMlp(nnx.Module):
    def __init__(self, rngs):
        self.last, self.mid, self.first = (nnx.Linear(D, size, rngs=rngs) for size in (F, D, D))
        self.norm = nnx.LayerNorm(D, rngs=rngs)

    def __call__(self, x):
        x = self.norm(jnp.tanh(self.first(x)))
        return self.last(jnp.tanh(self.mid(x)))


def loss(out, batch):
    return jnp.mean((out - batch["y"]) ** 2)


def batch(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(B, T, size)).astype("float32") for name, size in (("x", D), ("y", F))}


def create(key):
    module = LinenMlp()
    params = module.init(key, jnp.zeros((B, T, D)))["params"]
    return TrainState.create(apply_fn=module.apply, params=params, tx=ADAM)


def step(state, batch):
    def objective(params):
        return loss(state.apply_fn({"params": params}, batch["x"]), batch)

    value, grads = jax.value_and_grad(objective)(state.params)
    return state.apply_gradients(grads=grads), value


class Trained(nnx.Module):
    def __init__(self, key):
        self.model = NnxMlp(nnx.Rngs(key))
        self.optimizer = nnx.Optimizer(self.model, ADAM, wrt=nnx.Param)


def nnx_step(state, batch, sign=1):
    value, grads = nnx.value_and_grad(lambda model: loss(model(batch["x"]), batch))(state.model)
    state.optimizer.update(state.model, jax.tree.map(lambda grad: sign * grad, grads))
    return state, value


def pure_step(state, batch):
    graphdef = nnx.graphdef(nnx.eval_shape(lambda: Trained(jax.random.key(0))))
    after, value = nnx_step(nnx.merge(graphdef, state), batch)
    return nnx.state(after), value


LINEN = parity.CustomSide(create=create, programs={"train_step": step}, flavour=parity.Flavour.LINEN)


def cases(nnx_side, linen_side=LINEN, **options):
    return parity.twin_programs("own", linen=linen_side, nnx=nnx_side, inputs=batch, **options).cases({})


def result(nnx_side, linen_side=LINEN, channels=ALL, **options):
    (found,) = map(case_runner(Request(channels=channels)), cases(nnx_side, linen_side, **options))
    return found


def own(create, step, flavour=parity.Flavour.NNX):
    return parity.CustomSide(create=create, programs={"train_step": step}, flavour=flavour)


@pytest.mark.long
def test_a_train_state_is_paired_with_an_nnx_optimizer():
    """Names are matched automatically, moments are stored under `params`, and step counters differ in integer type."""
    found = result(own(Trained, nnx_step))
    assert str(found.verdict) == "passed", found.sentence()
    assert [note.where for note in found.channels["tree"].notes] == ["optimizer/step"]
    assert str(found.channels["state"].verdict) == "proved"
    (case,) = cases(own(Trained, nnx_step))
    assert case.reference().programs["train_step"].steps == 3


class Shared(nnx.Module):
    def __init__(self, key):
        self.model = NnxMlp(nnx.Rngs(key))
        self.model.mid = self.model.first
        self.optimizer = nnx.Optimizer(self.model, ADAM, wrt=nnx.Param)


def test_a_layer_that_one_side_uses_in_place_of_another_is_named():
    found = result(own(Shared, nnx_step), channels=("tree",)).channels["tree"]
    assert str(found.verdict) == "failed"
    first = found.findings[0]
    assert first.candidate.startswith("no such leaf, but model/first/"), first
    assert "model/mid/bias are one, shared at " in first.candidate
    assert first.candidate.endswith(" in Shared.__init__"), first


class Deeper(nnx.Module):
    def __init__(self, key):
        self.model = NnxMlp(nnx.Rngs(key))
        self.model.further = NnxMlp(nnx.Rngs(key))
        self.optimizer = nnx.Optimizer(self.model, ADAM, wrt=nnx.Param)


def test_a_module_that_one_side_lacks_is_of_the_line_that_makes_it():
    found = result(own(Deeper, nnx_step), channels=("tree",)).channels["tree"]
    first = found.findings[0]
    assert first.where.startswith("model/further/") and first.reference == "no such leaf", first
    assert " in Deeper.__init__" in first.next_step, first


def counting(dtype, by=1, read=False):
    """A side whose step counter has some integer type, and is used by the rest of the step if ``read``."""

    def create(key):
        return {"params": {"w": jax.random.normal(key, (D, F))}, "step": jnp.zeros((), dtype)}

    def step(state, batch):
        def objective(w):
            return loss(batch["x"] @ w, batch)

        value, grad = jax.value_and_grad(objective)(state["params"]["w"])
        rate = 0.1 / (1 + state["step"].astype(jnp.float32)) if read else 0.1
        return {"params": {"w": state["params"]["w"] - rate * grad}, "step": state["step"] + by}, value

    return own(create, step, parity.Flavour.LINEN)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sides", "program", "state"),
    [
        ((counting("int32"), counting("uint32")), "proved", "proved"),
        ((counting("int32", by=2), counting("uint32", by=2)), "proved", "proved"),
        ((counting("int32"), counting("uint32", by=2)), "unproved", "failed"),
        ((counting("int32", read=True), counting("uint32", read=True)), "unproved", "bitwise"),
        ((counting("int32"), counting("uint32", read=True)), "unproved", "failed"),
        ((counting("int32"), counting("uint8")), "unproved", "failed"),
    ],
)
def test_counters_in_other_integers_are_proved_if_both_count_equally(sides, program, state):
    found = result(sides[1], sides[0], channels=("program", "tree", "state"))
    assert (str(found.channels["program"].verdict), str(found.channels["state"].verdict)) == (program, state)
    words = "but for 1 counter that both sides count up alike, in other integers"
    assert (words in found.channels["program"].detail) is (program == "proved")


def noisy(dtype):
    """A program that folds its counter into its key."""

    def step(state, batch):
        noise = jax.random.normal(jax.random.fold_in(state["key"], state["step"]), batch["x"].shape)
        return {**state, "step": state["step"] + 1}, jnp.sum((batch["x"] + noise) @ state["params"]["w"])

    return own(
        lambda key: {
            "params": {"w": jax.random.normal(key, (D,))},
            "key": jax.random.key(7),
            "step": jnp.zeros((), dtype),
        },
        step,
        parity.Flavour.LINEN,
    )


@pytest.mark.slow
def test_keys_are_followed_through_counters_of_other_integers():
    found = result(noisy("uint32"), noisy("int32"), channels=("rng",))
    assert not found.channels["rng"].findings, found.channels["rng"]


def stepping(holder, name):
    """A program with a counter somewhere in its state, and another that counts by two."""

    def step(state, batch):
        value = jnp.sum(batch["x"] @ state["params"]["w"])
        held = {key: {one: count + 1 for one, count in state[key].items()} for key in (holder,)}
        return {**state, **held, "other": state["other"] + 2}, value

    return own(
        lambda key: {
            "params": {"w": jax.random.normal(key, (D,))},
            holder: {name: jnp.zeros((), jnp.int32)},
            "other": jnp.zeros((), jnp.int32),
        },
        step,
        parity.Flavour.LINEN,
    )


def decoding(total, differentiates=False, writes=True):
    """A step that writes into a cache and returns its parameters as they are."""

    def program(state, batch):
        w = state["params"]["w"]
        out = batch["x"][0, 0] @ w
        slope = jax.grad(lambda w: jnp.sum(batch["x"][0, 0] @ w))(w).sum() if differentiates else 0.0
        cache = jnp.roll(state["cache"], 1, axis=0).at[0].set(out + slope) if writes else state["cache"]
        return {**state, "cache": cache}, {"out": total(cache), "ends": jnp.full(B, 8)}

    def create(key):
        return {"params": {"w": jax.random.normal(key, (D, F))}, "cache": jnp.ones((T, F))}

    return own(create, program, parity.Flavour.LINEN)


@pytest.mark.long
@pytest.mark.parametrize("total", [lambda cache: cache.sum(0), lambda cache: jnp.ones(T) @ cache])
@pytest.mark.parametrize(
    ("program", "state"),
    [
        ({}, {"bitwise", "floor", "proved"}),
        ({"differentiates": True}, {"vacuous"}),
        ({"writes": False}, {"vacuous"}),
    ],
    ids=["a decode step", "a train step that loses its parameters", "no state moves"],
)
def test_a_step_without_gradients_may_keep_its_parameters(total, program, state):
    sides = decoding(lambda cache: cache.sum(0), **program), decoding(total, **program)
    found = result(*sides, channels=("program", "tree", "state", "values"))
    assert str(found.channels["state"].verdict) in state, found.channels["state"]
    # `ends` is a count, equal in all rows; where the cache never moves, no value depends on the inputs
    assert "writes" in program or found.channels["values"].verdict != "vacuous", found.channels["values"]


@pytest.mark.slow
def test_a_rule_pairs_a_counter_of_the_state_with_one_of_an_optimizer():
    rule = parity.Rule(reference=("counts/seen",), candidate=("opt_state/number",))
    sides = stepping("opt_state", "number"), stepping("counts", "seen")
    for rules, verdict in (((), "failed"), ((rule,), "equal")):
        found = result(*sides, channels=("tree",), weight_rules=rules)
        assert str(found.channels["tree"].verdict) == verdict


@pytest.mark.long
def test_a_pure_state_is_a_state_and_a_wrong_sign_is_found():
    assert str(result(own(lambda key: nnx.state(Trained(key)), pure_step)).verdict) == "passed"
    wrong = result(own(Trained, functools.partial(nnx_step, sign=-1)), channels=("program", "state"))
    assert str(wrong.channels["state"].verdict) == "failed"


def averaged(create, step, params):
    """Adds a moving average of the parameters to a train step, for any container of them."""

    def begin(key):
        state = create(key)
        return {"train": state, "average": jax.tree.map(jnp.zeros_like, params(state))}

    def update(state, batch, decay=0.9):
        after, value = step(state["train"], batch)
        move = functools.partial(jax.tree.map, lambda old, new: decay * old + (1 - decay) * new)
        return {"train": after, "average": move(state["average"], params(after))}, value

    return begin, update


@pytest.mark.long
def test_two_versions_of_one_flavour_are_compared_and_proved():
    begin, update = averaged(create, step, lambda state: state.params)
    linen_side = own(begin, update, parity.Flavour.LINEN)
    channels = ("program", "tree", "state")
    found = result(own(begin, update, parity.Flavour.LINEN), linen_side, channels)
    assert str(found.verdict) == "passed" and str(found.channels["program"].verdict) == "proved"
    wrong = result(
        own(begin, functools.partial(update, decay=0.8), parity.Flavour.LINEN), linen_side, channels
    )
    assert "average/" in wrong.channels["state"].findings[0].where


def test_a_step_counts_from_a_python_number_as_from_an_array():
    def warmed_up(state, batch):
        after, value = step(state, batch)
        return after, value * state.step**-0.5  # an error for the number 0 that `create` sets

    side = dataclasses.replace(LINEN, programs={"train_step": warmed_up})
    (case,) = cases(side, side)
    assert case.reference().programs["train_step"].steps == 3


@pytest.mark.long
def test_a_given_state_takes_the_place_of_a_random_one():
    state = create(jax.random.key(3))
    pair = parity.twin_programs(
        "own", linen=LINEN, nnx=own(Trained, nnx_step), inputs=batch, state={"params": state.params}
    )
    (case,) = pair.cases({})
    random = {path: np.full(leaf.shape, 7, leaf.dtype) for path, leaf in case.reference().abstract.items()}
    arranged = case.prepare_state(random)
    np.testing.assert_array_equal(arranged["params/Dense_0/kernel"], state.params["Dense_0"]["kernel"])
    assert (arranged["opt_state/0/mu/Dense_0/kernel"] == 7).all()
    with pytest.raises(ValueError, match=r"pair own: got state leaves params/Dense_9/kernel float32\[2\]"):
        wrong = {"params": {"Dense_9": {"kernel": np.zeros(2, np.float32)}}}
        parity.twin_programs("own", linen=LINEN, nnx=LINEN, inputs=batch, state=wrong).cases({})[
            0
        ].prepare_state(random)


@pytest.mark.parametrize(
    "second", [lambda state: state.params, lambda state: jnp.ones(2)], ids=["tree", "array"]
)
def test_two_outputs_are_values_if_the_first_is_no_state(second):
    def both(state, batch):
        return loss(state.apply_fn({"params": state.params}, batch["x"]), batch), second(state)

    (case,) = cases(own(create, both, parity.Flavour.LINEN), own(create, both, parity.Flavour.LINEN))
    build = case.reference()
    found = jax.eval_shape(build.programs["train_step"].function, build.abstract, build.abstract_inputs)
    assert set(found) == {"values"} and "outputs/0" in found["values"]


def test_a_returned_state_with_further_leaves_is_an_error():
    def step(state, batch):
        return {**state, "metric": jnp.ones(2)}, batch["x"].sum()

    side = own(lambda key: {"params": {"w": jax.random.normal(key, (D, F))}}, step, parity.Flavour.LINEN)
    found = result(side, side)
    assert "leaves that the state lacks: metric; return them as values" in found.sentence()


def test_values_may_rest_on_the_average_of_one_of_several_models():
    def make(key):
        params = {name: {"out": {"w": jax.random.normal(key, (D, F))}} for name in ("painter", "judge")}
        return {"params": params, "average": params["painter"]}

    def sample(state, batch):
        return batch["x"] @ state["average"]["out"]["w"]

    def other(state, batch):
        return batch["x"] @ state["average"]["out"]["w"] * 1.0

    for function in (sample, other):
        side = own(make, function, parity.Flavour.LINEN)
        found = result(side, own(make, sample, parity.Flavour.LINEN), channels=("program", "values"))
        assert str(found.verdict) == "passed", found.sentence()


def test_programs_must_have_the_same_names():
    other = parity.CustomSide(create=Trained, programs={"eval": nnx_step}, flavour=parity.Flavour.NNX)
    with pytest.raises(
        ValueError, match=r"got programs \['train_step'\] and \['eval'\], expected the same names"
    ):
        parity.twin_programs("own", linen=LINEN, nnx=other, inputs=batch)


@pytest.mark.long
def test_a_checkpoint_on_disk_takes_the_place_of_a_random_state(tmp_path):
    module = linen.Dense(F)
    variables = module.init(jax.random.key(9), jnp.ones((1, D)))
    pairs = [
        parity.twins(
            "kept",
            linen=module,
            nnx=lambda rngs: nnx.Linear(D, F, rngs=rngs),
            inputs=batch,
            loss=loss,
            state=path,
        )
        for path in (tmp_path / "whole", str(tmp_path / "bare"), tmp_path / "other")
    ]
    for name, tree in {"whole": variables, "bare": variables["params"], "other": {"w": jnp.ones(3)}}.items():
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / name, tree)
    for pair in pairs[:2]:
        state = Evidence.of(pair.cases({})[0], Session()).state
        np.testing.assert_array_equal(state["params/kernel"], variables["params"]["kernel"])
        assert "opt_state/0/mu/kernel" in state
    with pytest.raises(ValueError, match=r"got state leaves w float32\[3\]; expected some of"):
        _ = Evidence.of(pairs[2].cases({})[0], Session()).state


def test_published_sizes_are_a_separate_pair():
    def pair(name, width, **more):
        return parity.twins(
            name,
            linen=linen.Dense(width),
            nnx=lambda rngs: nnx.Linear(D, width, rngs=rngs),
            inputs=batch,
            loss=loss,
            programs=("forward",),
            **more,
        )

    found = pair("small", 3, full_size=pair("small-7b", 7_000))
    assert [case.id for case in found.cases({})] == ["small/forward@single"]
    (case,) = found.full_size({}, 4)
    assert case.id == "small-7b/forward@single" and case.reference().abstract["params/kernel"].shape == (
        D,
        7_000,
    )
    assert pair("small", 3).full_size({}, 4) == ()


def differentiated(make, flavour, top, factor=1):
    """A side that returns the gradients of its parameters without the name of their collection."""

    def program(state, batch):
        grads = jax.grad(lambda params: jnp.sum(jnp.sin(batch["x"] @ params[top]["w"])))(state["params"])
        return {"gradients": jax.tree.map(lambda grad: factor * grad, grads)}

    def create(key):
        return {"params": {top: {"w": make(key, (D, F)), "unused": jnp.ones(3)}}}

    return parity.CustomSide(create=create, programs={"grad": program}, flavour=flavour)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "passes"), [(1, True), (2, False)])
def test_gradients_are_paired_as_their_parameters_are(factor, passes):
    make = jax.random.normal
    found = result(
        differentiated(make, parity.Flavour.LINEN, "right", factor),
        differentiated(make, parity.Flavour.LINEN, "left"),
        zero_gradients=("*unused*",),
        channels=("program", "tree", "gradients"),
    )
    gradients = found.channels["gradients"]
    assert (gradients.verdict.value != "failed") is passes, found.sentence()
    assert passes or gradients.findings[0].where.startswith("params/left/w"), gradients


def test_gradients_are_of_the_parameters_where_an_average_has_their_names():
    def create(key):
        weights = {"left": {"w": jax.random.normal(key, (D, F)), "unused": jnp.ones(3)}}
        return nnx.State({"params": nnx_params(weights), "slow": nnx_params(weights)})

    def nnx_params(tree):
        return jax.tree.map(nnx.Param, tree)

    plain = differentiated(jax.random.normal, parity.Flavour.NNX, "left")
    side = dataclasses.replace(plain, create=create)
    build = side.build("own", batch, ())
    assert {"params/left/w", "slow/left/w"} <= set(build.abstract)
    outputs = jax.eval_shape(build.programs["grad"].function, build.abstract, build.abstract_inputs)
    assert set(outputs["gradients"]) == {"params/left/w", "params/left/unused"}


RATES = {"critic": 0.03, "actor": 0.01}
"""Learning rates of the two parts of a state."""


HOLDERS = {"critic": "second", "actor": "first"}
"""Names of the optimizers on one side, without a meaning."""


def players_loss(scale, critic, actor, x):
    value = jnp.tanh(critic(x))
    return jnp.mean(value**3) + scale * jnp.mean(jax.lax.stop_gradient(value) * jnp.tanh(actor(x)))


def linen_players():
    """A state of two `TrainState`s."""
    dense = linen.Dense(F)

    def create(key):
        variables = {name: dense.init(jax.random.fold_in(key, len(name)), jnp.ones((1, D))) for name in RATES}
        return {
            name: TrainState.create(apply_fn=dense.apply, params=of["params"], tx=optax.adam(RATES[name]))
            for name, of in variables.items()
        }

    def loss(params, batch):
        critic, actor = (functools.partial(dense.apply, {"params": params[name]}) for name in RATES)
        return players_loss(2, critic, actor, batch["x"])

    def step(state, batch):
        found, grads = jax.value_and_grad(loss)({name: each.params for name, each in state.items()}, batch)
        return {name: each.apply_gradients(grads=grads[name]) for name, each in state.items()}, found

    def grad(state, batch):
        return {"gradients": jax.grad(loss)({name: each.params for name, each in state.items()}, batch)}

    return parity.CustomSide(
        create=create, programs={"train_step": step, "grad": grad}, flavour=parity.Flavour.LINEN
    )


class NnxPlayers(nnx.Module):
    def __init__(self, key):
        for name, rate in RATES.items():
            part = nnx.Linear(D, F, rngs=nnx.Rngs(jax.random.fold_in(key, len(name))))
            setattr(self, name, part)
            setattr(self, HOLDERS[name], nnx.Optimizer(part, optax.adam(rate), wrt=nnx.Param))


def nnx_players(scale):
    """A module with two optimizers; ``scale`` is of the actor's loss."""

    def loss(critic, actor, batch):
        return players_loss(scale, critic, actor, batch["x"])

    def step(model, batch):
        found, grads = nnx.value_and_grad(loss, argnums=(0, 1))(model.critic, model.actor, batch)
        model.second.update(model.critic, grads[0])
        model.first.update(model.actor, grads[1])
        return model, found

    def grad(model, batch):
        grads = nnx.grad(loss, argnums=(0, 1))(model.critic, model.actor, batch)
        return {"gradients": dict(zip(RATES, grads, strict=True))}

    return parity.CustomSide(
        create=NnxPlayers, programs={"train_step": step, "grad": grad}, flavour=parity.Flavour.NNX
    )


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "failed"), [(2, None), (3, "actor")])
def test_each_part_of_a_state_has_its_parameters_and_its_optimizer(scale, failed):
    step, grad = (
        result(*(dataclasses.replace(side, programs={name: side.programs[name]}) for side in sides))
        for sides in [(linen_players(), nnx_players(scale))]
        for name in ("train_step", "grad")
    )
    assert step.channels["tree"].verdict.value == "equal", step.sentence()
    wrong = {finding.where.split("/")[0] for finding in grad.channels["gradients"].findings}
    assert wrong == ({failed} if failed else set()), grad.sentence()
    assert (step.verdict == "failed") is bool(failed), step.sentence()


def test_gradients_whose_names_are_equal_without_their_holder_are_all_kept():
    def program(state, batch):
        return {"gradients": {"left": {"w": batch["x"]}, "params": {"left": {"w": 2 * batch["x"]}}}}

    plain = differentiated(jax.random.normal, parity.Flavour.LINEN, "left")
    build = dataclasses.replace(plain, programs={"grad": program}).build("own", batch, ())
    outputs = jax.eval_shape(build.programs["grad"].function, build.abstract, build.abstract_inputs)
    assert set(outputs["gradients"]) == {"left/w", "params/left/w"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "verdict"), [(("batch", None, "wide"), "equal"), (("batch", None, None), "failed")]
)
def test_programs_are_traced_with_the_axis_rules_of_the_pair(axes, verdict):
    def side(axes, flavour):
        def forward(state, batch):
            return linen.with_logical_constraint(jnp.tanh(batch["x"] @ state["params"]["w"]), axes)

        def make(key):
            return {"params": {"w": jax.random.normal(key, (D, H))}}

        return parity.CustomSide(create=make, programs={"forward": forward}, flavour=flavour)

    found = result(
        side(axes, parity.Flavour.NNX),
        side(("batch", None, "wide"), parity.Flavour.LINEN),
        channels=("sharding",),
        axis_rules=(("batch", "data"), ("wide", "model")),
        meshes=("data2.model2-auto",),
    )
    assert str(found.channels["sharding"].verdict) == verdict, found.channels["sharding"]
