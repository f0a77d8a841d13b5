"""Short training runs of the decoder twins on synthetic data, step by step, from scratch or a checkpoint."""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import jax
import numpy as np

from models_nnx.shared import store
from models_nnx.shared.data import packed_batch
from parity.builds.build import Flavour
from parity.builds.tree import to_host
from parity.compare.backends.backend import quiet
from parity.matrix.decoders import Variant, builder, input_specs, replica_batches
from parity.matrix.runs import Training

__all__ = ["Trainer", "check_save", "differing", "earlier", "losses"]


class Trainer:
    """A training run of one twin; each call of `advance` makes one step.

    Args:
        flavour: flavour of the twin.
        run: description of the run.
        resume: a checkpoint of either twin to continue from; None for a fresh state.

    Raises:
        ValueError: the models are not installed, or the mesh has too many devices or does not fit the model.
        CheckpointError: the checkpoint does not belong to this run.
    """

    def __init__(self, flavour: Flavour, run: Training, resume: Path | None = None):
        self._run = run
        self._mesh = (
            run.mesh.on(jax.devices()) if run.mesh.axes else jax.sharding.Mesh(jax.devices()[:1], ("data",))
        )
        side, key = builder(flavour), jax.random.key(run.seed)
        variant = Variant(run.title, run.config, run.train, run.shape, run.diloco)
        self._key, self._loop = key, side.loop(variant, key)
        specs = side.models(variant).state_specs(run.config, run.train, self._loop.example, self._mesh)
        self._places = jax.tree.map(self._on, specs)
        self._create = jax.jit(self._loop.create, out_shardings=self._places)
        self._step = jax.jit(self._loop.step, donate_argnums=0, out_shardings=(self._places, None))
        self._begin(resume)

    def again(self, resume: Path | None = None) -> "Trainer":
        """Returns another trainer of this run, from scratch or a checkpoint; nothing is compiled again."""
        other = copy.copy(self)
        other._begin(resume)
        return other

    def _begin(self, resume: Path | None) -> None:
        if resume:
            self._state = self._loop.checkpoint.restore(resume, self._loop.example, self._places)
        else:
            self._state = self._create(self._key)
        self.done = int(self.named()["outer/step" if self._run.diloco else "step"])

    def advance(self) -> float:
        """Makes one step and returns its loss, the mean over replicas if there are several."""
        batch = self._batch()
        specs = input_specs(self._run.config, batch, self._mesh)
        batch = {name: jax.device_put(array, self._on(specs[name])) for name, array in batch.items()}
        with jax.set_mesh(self._mesh), quiet():  # the first step compiles, with messages
            self._state, metrics = self._step(self._state, batch)
        self.done += 1
        return float(np.mean(np.asarray(metrics["loss"], np.float64)))

    def _batch(self) -> dict[str, np.ndarray]:
        run, seed = self._run, self._run.seed + self.done
        if run.diloco:
            return replica_batches(run.shape, run.diloco.replicas, seed)
        return packed_batch(*run.shape, seed)

    def _on(self, spec: jax.sharding.PartitionSpec) -> jax.sharding.NamedSharding:
        return jax.sharding.NamedSharding(self._mesh, spec)

    def named(self) -> Mapping[str, jax.Array]:
        """Returns the state under its names on disk."""
        return self._loop.checkpoint.named(self._state)

    def save(self, folder: Path, so_far: Mapping[int, float]) -> Path:
        """Writes the state and the losses of the steps so far to this step's checkpoint folder.

        Raises:
            CheckpointError: the checkpoint exists already, or the disk is full.
        """
        numbers = {str(step): loss if math.isfinite(loss) else None for step, loss in so_far.items()}
        about = {**self._run.asked, "losses": numbers}
        return self._loop.checkpoint.save(store.step_folder(folder, self.done), self._state, about)


def losses(flavour: Flavour, run: Training) -> Iterator[float]:
    """Yields the loss of each step of a run, without end.

    Raises:
        ValueError: the mesh needs more devices than are available, or does not fit the model.
    """
    trainer = Trainer(flavour, run)
    while True:
        yield trainer.advance()


def earlier(folder: Path, run: Training) -> tuple[Path, dict[int, float]]:
    """Returns the last checkpoint in a folder and the losses of the steps before it.

    Args:
        folder: folder of a run, or one checkpoint.
        run: the run to continue.

    Raises:
        CheckpointError: there is none, it is damaged, or it belongs to another run.
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
            f"{found}: got a run with {', '.join(other)}, expected {expected}; give the options of the saved run"
        )
    return found, {int(step): math.nan if loss is None else loss for step, loss in numbers.items()}


def check_save(folder: Path, steps: Iterable[int], state: Mapping[str, jax.Array]) -> None:
    """Checks, before training starts, that checkpoints of some steps can be written to a folder.

    Raises:
        CheckpointError: the folder has one of them already, is not writable, or has no space for ``state``.
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


def differing(left: Mapping[str, jax.Array], right: Mapping[str, jax.Array]) -> list[str]:
    """Returns the names of leaves that differ in shape, dtype or bits, or that only one state has."""
    bits = [
        {name: (array.shape, array.dtype, array.tobytes()) for name, array in to_host(dict(side)).items()}
        for side in (left, right)
    ]
    return [name for name in sorted({*left, *right}) if bits[0].get(name) != bits[1].get(name)]
