"""Short training runs of the decoder twins, step by step, on synthetic data, from the start or a checkpoint."""

import copy
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

import models_linen.checkpoint
import models_linen.diloco
import models_linen.train
import models_nnx.checkpoint
import models_nnx.diloco
import models_nnx.train
from models_nnx.shared import store
from models_nnx.shared.data import packed_batch
from models_nnx.shared.ops import REPLICA
from models_nnx.shared.sharding import resolve
from parity.builds.build import Flavour
from parity.builds.tree import to_host
from parity.compare.backends.quiet import quiet
from parity.matrix.replicas import replica_batches
from parity.matrix.runs import Training

__all__ = ["Trainer", "check_save", "differing", "earlier", "losses"]

BATCH_AXES = ("activation_batch", "activation_length")


class Trainer:
    """One twin at work: each call of `advance` makes one step.

    Args:
        flavour: which twin.
        run: what it trains.
        resume: a checkpoint of either twin to go on from; a fresh state without.

    Raises:
        ValueError: the mesh needs more devices than there are, or does not fit the model.
        CheckpointError: the checkpoint does not hold this run.
    """

    def __init__(self, flavour: Flavour, run: Training, resume: Path | None = None):
        self._run = run
        self._mesh = (
            run.mesh.on(jax.devices()) if run.mesh.axes else jax.sharding.Mesh(jax.devices()[:1], ("data",))
        )
        self._twin = {Flavour.LINEN: _linen, Flavour.NNX: _nnx}[flavour](run, self._mesh)
        self._begin(resume)

    def again(self, resume: Path | None = None) -> "Trainer":
        """Returns another run of the same, from the start or a checkpoint; nothing is compiled again."""
        other = copy.copy(self)
        other._begin(resume)
        return other

    def _begin(self, resume: Path | None) -> None:
        self._state = self._twin.restore(resume) if resume else self._twin.fresh()
        self.done = int(self.named()["outer/step" if self._run.diloco else "step"])

    def advance(self) -> float:
        """Makes one step and returns its loss, the mean over replicas where there are several."""
        batch = {name: jax.device_put(array, self._place(name, array)) for name, array in self._arrays()}
        with jax.set_mesh(self._mesh), quiet():  # the first step compiles, and the partitioner thinks aloud
            self._state, metrics = self._twin.step(self._state, batch)
        self.done += 1
        return float(np.mean(np.asarray(metrics["loss"], np.float64)))

    def _arrays(self) -> Iterable[tuple[str, np.ndarray]]:
        run, seed = self._run, self._run.seed + self.done
        if run.diloco:
            return replica_batches(run.shape, run.diloco.replicas, seed).items()
        return packed_batch(*run.shape, seed).items()

    def _place(self, name: str, array: np.ndarray) -> jax.sharding.NamedSharding:
        axes = (REPLICA, *BATCH_AXES)[-array.ndim :]
        return _on(self._mesh, resolve(axes, array.shape, self._run.config.rules, self._mesh, name))

    def named(self) -> Mapping[str, jax.Array]:
        """Returns the state under its names on disk."""
        return self._twin.named(self._state)

    def save(self, folder: Path, so_far: Mapping[int, float]) -> Path:
        """Writes the state, and the losses of the steps so far, to where a run keeps the checkpoint of this step.

        Raises:
            CheckpointError: there is one already, or no room.
        """
        numbers = {str(step): loss if math.isfinite(loss) else None for step, loss in so_far.items()}
        about = {**self._run.asked, "losses": numbers}
        return self._twin.save(store.step_folder(folder, self.done), self._state, about)


def losses(flavour: Flavour, run: Training) -> Iterator[float]:
    """Yields the loss of each step of a run, for ever.

    Raises:
        ValueError: the mesh needs more devices than there are, or does not fit the model.
    """
    trainer = Trainer(flavour, run)
    while True:
        yield trainer.advance()


def earlier(folder: Path, run: Training) -> tuple[Path, dict[int, float]]:
    """Returns the last checkpoint in a folder and the losses of the steps that led to it.

    Args:
        folder: of a run, or one checkpoint.
        run: what is to go on.

    Raises:
        CheckpointError: there is none, it is damaged, or it is of another run.
    """
    found = store.find(folder)
    about = dict(store.inspect(found).about)
    numbers = about.pop("losses", {})
    other = [f"{name} {about.get(name)!r}" for name, value in run.asked.items() if about.get(name) != value]
    if other:
        expected = ", ".join(
            f"{name} {value!r}" for name, value in run.asked.items() if about.get(name) != value
        )
        raise store.CheckpointError(
            f"{found}: got a run with {', '.join(other)}, expected {expected}; ask for the run that was saved"
        )
    return found, {int(step): math.nan if loss is None else loss for step, loss in numbers.items()}


def check_save(folder: Path, steps: Iterable[int], state: Mapping[str, jax.Array]) -> None:
    """Checks that checkpoints of some steps can be written to a folder, before there is anything to lose.

    Raises:
        CheckpointError: the folder has one of them already, cannot be written to, or has no room for ``state``.
    """
    try:
        store.check_writable(folder, state)
    except store.CheckpointError as error:
        raise store.CheckpointError(f"--save {error}") from error
    for step in steps:
        if store.step_folder(folder, step).exists():
            raise store.CheckpointError(
                f"--save {folder}: already has step {step}, expected a folder without; name another, or --resume it"
            )


def differing(ours: Mapping[str, jax.Array], theirs: Mapping[str, jax.Array]) -> list[str]:
    """Returns the names whose leaves have other bits, or that only one state has."""
    hosts = [to_host(dict(side)) for side in (ours, theirs)]
    return [
        name
        for name in sorted({*ours, *theirs})
        if any(name not in host for host in hosts) or _bits(hosts[0][name]) != _bits(hosts[1][name])
    ]


def _bits(array: np.ndarray) -> tuple[Any, ...]:
    return array.shape, array.dtype, array.tobytes()


class _Twin(NamedTuple):
    """What a flavour does with a run."""

    fresh: Callable[[], Any]
    restore: Callable[[Path], Any]
    step: Callable[[Any, Any], tuple[Any, Mapping[str, jax.Array]]]
    named: Callable[[Any], Mapping[str, jax.Array]]
    save: Callable[[Path, Any, Mapping[str, Any]], Path]


def _on(mesh: jax.sharding.Mesh, spec: jax.sharding.PartitionSpec) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(mesh, spec)


def _linen(run: Training, mesh: jax.sharding.Mesh) -> _Twin:
    checkpoint, unbox = models_linen.checkpoint, models_linen.train.unbox
    batch = {name: jax.ShapeDtypeStruct(run.shape, "int32") for name in ("tokens", "segments", "positions")}
    parts = (run.config, run.train, *([run.diloco] if run.diloco else []))
    if run.diloco:
        models, make_step = models_linen.diloco, models_linen.diloco.diloco_step
    else:
        models, make_step = models_linen.train, models_linen.train.train_step
    create = functools.partial(models.create, *parts, batch=batch)
    key = jax.random.key(run.seed)
    example = jax.eval_shape(create, key)
    specs = models.state_specs(run.config, run.train, example, mesh)
    places = jax.tree.map(functools.partial(_on, mesh), specs)
    fresh = jax.jit(lambda key: unbox(create(key)), out_shardings=places)
    step = functools.partial(make_step, *parts)
    return _Twin(
        fresh=lambda: fresh(key),
        restore=lambda folder: checkpoint.restore(folder, example, places),
        step=jax.jit(step, donate_argnums=0, out_shardings=(places, None)),
        named=checkpoint.named,
        save=checkpoint.save,
    )


def _nnx(run: Training, mesh: jax.sharding.Mesh) -> _Twin:
    checkpoint = models_nnx.checkpoint
    parts: tuple[Any, ...] = (run.train, run.diloco) if run.diloco else (run.train,)
    if run.diloco:
        models, make_step = models_nnx.diloco, models_nnx.diloco.diloco_step
    else:
        models, make_step = models_nnx.train, models_nnx.train.train_step
    create: Callable[[jax.Array], Any] = functools.partial(models.create, run.config, *parts)
    advance: Callable[..., Any] = functools.partial(make_step, *parts)
    key = jax.random.key(run.seed)
    graphdef, example = nnx.split(nnx.eval_shape(lambda: create(key)))
    specs = models.state_specs(run.config, run.train, example, mesh)
    places = jax.tree.map(functools.partial(_on, mesh), specs)

    fresh = jax.jit(lambda key: nnx.state(create(key)), out_shardings=places)

    def step(leaves, batch):
        state = nnx.merge(graphdef, leaves)
        metrics = advance(state, batch)
        return nnx.state(state), metrics

    return _Twin(
        fresh=lambda: fresh(key),
        restore=lambda folder: checkpoint.restore(folder, example, places),
        step=jax.jit(step, donate_argnums=0, out_shardings=(places, None)),
        named=checkpoint.named,
        save=checkpoint.save,
    )
