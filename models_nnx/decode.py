"""Decoding with caches: fill them from a prompt, insert a row into a batch, extend rows token by token.

B row of the batch, T position of the prompt, N new token, V vocab.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from models_nnx.model import LanguageModel
from models_nnx.shared import ops
from models_nnx.shared.config import CacheUse, DecodeConfig

__all__ = ["decode_step", "generate", "insert", "prefill"]

insert = ops.insert_row


def prefill(decode: DecodeConfig, model: LanguageModel, tokens_BT, lengths_B, key=None):
    """Returns ``(logits_BV, state)`` after prompts: the last token's logits, and rows with the next token chosen.

    Args:
        decode: static.
        model: unchanged after the call.
        tokens_BT: int32 prompts, aligned left; entries beyond their lengths are ignored.
        lengths_B: int32, at least 1.
        key: required with a temperature.
    """
    positions_BT, segments_BT = ops.prompt_layout(tokens_BT, lengths_B)
    caching = decode.caching(CacheUse.PREFILL)
    logits_BTV = model(tokens_BT, segments_BT, positions_BT, caching=caching)
    cache, _ = nnx.pop(model, nnx.Cache, nnx.Intermediate)
    logits_BV = ops.last_logits(logits_BTV, lengths_B, model.config.rules)
    chosen_B1 = ops.choose_token(logits_BV, decode, key)
    return logits_BV, ops.DecodeState(chosen_B1, lengths_B[:, None], cache)


def decode_step(decode: DecodeConfig, model: LanguageModel, state: ops.DecodeState, key=None):
    """Returns ``(logits_BV, state)`` after each row has read its token and chosen the next; see `prefill`."""
    tokens_B1, positions_B1, cache = state
    caching = decode.caching(CacheUse.DECODE)
    nnx.update(model, cache)
    logits_B1V = model(tokens_B1, jnp.ones_like(tokens_B1), positions_B1, caching=caching)
    cache, _ = nnx.pop(model, nnx.Cache, nnx.Intermediate)
    logits_BV = logits_B1V[:, 0]
    chosen_B1 = ops.choose_token(logits_BV, decode, key)
    return logits_BV, ops.DecodeState(chosen_B1, positions_B1 + 1, cache)


def generate(decode: DecodeConfig, model: LanguageModel, state: ops.DecodeState, steps: int, key=None):
    """Returns ``(tokens_BN, state)``: ``steps`` tokens of each row, beginning with the one already chosen.

    Args:
        decode: static.
        model: see `prefill`.
        state: rows; positions plus ``steps`` stay within ``decode.length``.
        steps: N, static.
        key: required with a temperature; each step folds its number in.
    """
    graphdef, leaves = nnx.split(model)

    def step(state, number):
        step_key = None if key is None else jax.random.fold_in(key, number)
        _, after = decode_step(decode, nnx.merge(graphdef, leaves), state, step_key)
        return after, state.tokens_B1[:, 0]

    state, tokens_NB = jax.lax.scan(step, state, jnp.arange(steps))
    return tokens_NB.T, state
