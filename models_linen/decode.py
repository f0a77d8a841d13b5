"""Decoding with caches: fill them from a prompt, insert a row into a batch, extend rows token by token.

B row of the batch, T position of the prompt, N new token, V vocab.
"""

import jax
import jax.numpy as jnp

from models_linen.model import LanguageModel
from models_nnx.shared import ops
from models_nnx.shared.config import CacheUse, DecodeConfig, ModelConfig

__all__ = ["decode_step", "generate", "insert", "prefill"]

insert = ops.insert_row


def prefill(config: ModelConfig, decode: DecodeConfig, variables, tokens_BT, lengths_B, key=None):
    """Returns ``(logits_BV, state)`` after prompts: the last token's logits, and rows with the next token chosen.

    Args:
        config, decode: static.
        variables: collections ``params`` and, if the model has one, ``routing_bias``.
        tokens_BT: int32 prompts, aligned left; entries beyond their lengths are ignored.
        lengths_B: int32, at least 1.
        key: required with a temperature.
    """
    positions_BT, segments_BT = ops.prompt_layout(tokens_BT, lengths_B)
    logits_BTV, left = LanguageModel(config).apply(
        variables,
        tokens_BT,
        segments_BT,
        positions_BT,
        caching=decode.caching(CacheUse.PREFILL),
        mutable=["cache"],
    )
    logits_BV = ops.last_logits(logits_BTV, lengths_B, config.rules)
    chosen_B1 = ops.choose_token(logits_BV, decode, key)
    return logits_BV, ops.DecodeState(chosen_B1, lengths_B[:, None], left["cache"])


def decode_step(config: ModelConfig, decode: DecodeConfig, variables, state: ops.DecodeState, key=None):
    """Returns ``(logits_BV, state)`` after each row has read its token and chosen the next; see `prefill`."""
    tokens_B1, positions_B1, cache = state
    logits_B1V, left = LanguageModel(config).apply(
        {**variables, "cache": cache},
        tokens_B1,
        jnp.ones_like(tokens_B1),
        positions_B1,
        caching=decode.caching(CacheUse.DECODE),
        mutable=["cache"],
    )
    logits_BV = logits_B1V[:, 0]
    chosen_B1 = ops.choose_token(logits_BV, decode, key)
    return logits_BV, ops.DecodeState(chosen_B1, positions_B1 + 1, left["cache"])


def generate(
    config: ModelConfig, decode: DecodeConfig, variables, state: ops.DecodeState, steps: int, key=None
):
    """Returns ``(tokens_BN, state)``: ``steps`` tokens of each row, beginning with the one already chosen.

    Args:
        config, decode: static.
        variables: see `prefill`.
        state: rows; positions plus ``steps`` stay within ``decode.length``.
        steps: N, static.
        key: required with a temperature; each step folds its number in.
    """

    def step(state, number):
        step_key = None if key is None else jax.random.fold_in(key, number)
        _, after = decode_step(config, decode, variables, state, step_key)
        return after, state.tokens_B1[:, 0]

    state, tokens_NB = jax.lax.scan(step, state, jnp.arange(steps))
    return tokens_NB.T, state
