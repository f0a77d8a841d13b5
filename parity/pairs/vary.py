"""The decoders with other settings: what flags flip, and what an explanation tries."""

from collections.abc import Iterator, Mapping

from models_nnx.config import ConfigError, ModelConfig, TrainConfig, override

__all__ = ["ablations", "varied"]

PLAINEST: tuple[Mapping[str, str], ...] = (
    {"remat.policy": "none", "remat.names": ""},
    {"layout": "unrolled"},
    {"dropout": "0.0"},
    {"train.accumulation": "1"},
    {"train.vocab_tiles": "1"},
    {"train.moments": "like_parameters"},
    {"compute_dtype": "float32"},
    {"param_dtype": "float32"},
    {"head": "untied"},
    {"scan_axis": "1"},
    {"attention.kernel": "plain"},
    {"moe.dispatch": "dropless"},
    {"moe.load_balance": "0.0"},
    {"mtp": "none"},
    {"layer_schedule": "plain"},
    {"layers": "1"},
)
"""Settings that switch something off, likely causes of a difference in structure first."""


def varied(
    config: ModelConfig, train: TrainConfig, settings: Mapping[str, str]
) -> tuple[ModelConfig, TrainConfig]:
    """Returns both configs with settings changed; those of the train config begin with ``train.``.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    prefix = "train."
    of_train = {name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)}
    of_model = {name: text for name, text in settings.items() if not name.startswith(prefix)}
    return override(config, of_model), override(train, of_train)


def ablations(config: ModelConfig, train: TrainConfig) -> tuple[Mapping[str, str], ...]:
    """Returns the settings of `PLAINEST` that a config allows and does not have yet."""
    return tuple(_changing(config, train))


def _changing(config: ModelConfig, train: TrainConfig) -> Iterator[Mapping[str, str]]:
    for settings in PLAINEST:
        try:
            changed = varied(config, train, settings)
        except ConfigError:
            continue
        if changed != (config, train):
            yield settings
