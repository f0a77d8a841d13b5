"""Writes the logits of Hugging Face transformers for a tiny model of each family: ``python make_goldens.py [NAME...]``.

Needs the extra ``oracle`` (torch and transformers); ordinary tests read the files and need neither. The
weights come from `oracle_weights`, so a file holds only logits. Each document of a packed batch runs separately.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from hugging_face import FAMILIES, hf_config, hf_weights  # noqa: E402
from oracle_goldens import batch_of, config_of  # noqa: E402


def logits(model, batch):
    """Returns logits ``[B, T, V]``, zeros on padding."""
    rows, length = batch["tokens"].shape
    out = np.zeros((rows, length, model.config.vocab_size), np.float32)
    for row in range(rows):
        for segment in range(1, batch["segments"][row].max() + 1):
            where = np.flatnonzero(batch["segments"][row] == segment)
            tokens = torch.tensor(batch["tokens"][row, where])[None].long()
            out[row, where] = model(input_ids=tokens, use_cache=False).logits[0].numpy()
    return out


@torch.no_grad()
def main(names):
    for name in names or FAMILIES:
        config = config_of(name)
        model = getattr(transformers, FAMILIES[name])(hf_config(name, config)).eval()
        missing, unexpected = model.load_state_dict(hf_weights(name, config), strict=False)
        missing = [key for key in missing if not key.endswith("lm_head.weight") or config.head != "tied"]
        assert not missing and not unexpected, (name, missing, unexpected)
        model.tie_weights()
        np.savez_compressed(HERE / f"{name}.npz", logits=logits(model, batch_of()))
        print(name, (HERE / f"{name}.npz").stat().st_size, "bytes, transformers", transformers.__version__)


if __name__ == "__main__":
    main(sys.argv[1:])
