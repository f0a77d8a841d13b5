"""MaxText's Linen and NNX decoders, each in its own train step, as twins: docs/maxtext.md."""

import functools
import itertools
import types

import jax
import numpy as np
from flax import linen, nnx
from maxtext.common.train_state_nnx import TrainStateNNX
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train
from maxtext.utils import maxtext_utils, model_creation_utils, sharding, train_utils

import parity

SMALL = """run_name=parity base_output_directory=out jax_cache_dir="" log_config=False override_model_config=True
enable_checkpointing=False skip_jax_distributed_system=True hardware=cpu dataset_type=synthetic vocab_size=64
attention=dot_product base_emb_dim=16 base_num_query_heads=4 base_num_kv_heads=4 head_dim=8 base_mlp_dim=32
base_num_decoder_layers=2 max_target_length=16 per_device_batch_size=1 learning_rate=0.1 warmup_steps_fraction=0
base_moe_mlp_dim=32 sparse_matmul=False sliding_window_size=8 chunk_attn_window_size=8 global_head_dim=16
kv_lora_rank=8 v_head_dim=8 qk_nope_head_dim=8 qk_rope_head_dim=8 first_num_dense_layers=1 indexer_head_dim=8
indexer_n_heads=2 indexer_topk=4 o_groups=2 o_lora_rank=8 gdn_key_head_dim=8 gdn_value_head_dim=8 gdn_chunk_size=8
gdn_num_key_heads=2 gdn_num_value_heads=4 hidden_size_per_layer_input=8 vocab_size_per_layer_input=64"""
MOE, EIGHT = "num_experts=4 num_experts_per_tok=2", "base_num_decoder_layers=8"
FAMILIES = {  # over the small settings, as on MaxText's command line
    "llama2": "model_name=llama2-7b",
    "mistral": "model_name=mistral-7b",
    "mixtral": f"model_name=mixtral-8x7b {MOE}",
    "deepseek2": f"model_name=deepseek2-16b {MOE} base_num_decoder_layers=3",
    "deepseek3": f"model_name=deepseek3-tiny {MOE} base_num_decoder_layers=3 q_lora_rank=8",
    "deepseek4": f"model_name=deepseek4-tiny {MOE} base_num_decoder_layers=4 base_num_kv_heads=1 q_lora_rank=8"
    " compress_ratios=[0,0,4,8] first_num_hash_layers=0 routed_bias=False",
    "gemma": "model_name=gemma-2b",
    "gemma2": "model_name=gemma2-2b",
    "gemma3": f"model_name=gemma3-4b {EIGHT}",
    "gemma4": f"model_name=gemma4-26b {MOE} base_num_decoder_layers=6",
    "gemma4-small": "model_name=gemma4-e2b base_num_decoder_layers=10 num_kv_shared_layers=5",
    "gpt3": "model_name=gpt3-52k trainable_position_size=16",
    "gpt-oss": f"model_name=gpt-oss-20b {MOE}",
    "qwen2": "model_name=qwen2.5-1.5b",
    "qwen3": "model_name=qwen3-0.6b",
    "qwen3-moe": f"model_name=qwen3-30b-a3b {MOE}",
    "qwen3-custom": f"model_name=qwen3-custom-30b-a3b {MOE} attention_output_dim=24 moe_expert_input_dim=24",
    "qwen3-next": f"model_name=qwen3-next-80b-a3b {MOE} {EIGHT}",
    "qwen3.5": f"model_name=qwen3.5-35b-a3b {MOE} {EIGHT} head_dim=32 mrope_section=[2,1,1]",
    "llama4": f"model_name=llama4-17b-16e {EIGHT} num_experts=4",
    "olmo3": f"model_name=olmo3-7b {EIGHT}",
    "pipeline": "model_name=llama2-7b base_num_decoder_layers=4 num_pipeline_repeats=2",
}
BIAS, INDEXER = "routed_bias_update_rate=0.01", "use_indexer=True indexer_loss_scaling_factor=0.1"
DIFFERENCES = {  # what differs in 0.2.4: family, further settings
    "bias": ("deepseek3", BIAS),
    "bias-mtp": ("deepseek3", f"{BIAS} mtp_num_layers=1 mtp_loss_scaling_factor=0.1"),
    "outside": ("pipeline", "base_num_decoder_layers=5 pipeline_parallel_layers=4"),
    "remainder": ("gemma4", "base_num_decoder_layers=7"),
    "hash": ("deepseek4", "first_num_hash_layers=2"),
    "fp8": ("llama2", "quantization=fp8 use_qwix_quantization=True"),
    "int8": ("llama2", "quantization=int8 use_qwix_quantization=True"),
    "aqt": ("mixtral", "quantization=int8"),
    "warmup": ("deepseek3", f"{INDEXER} indexer_sparse_training=False"),
    "zero1": ("llama2", "shard_optimizer_over_data=True"),
    "tiling": ("llama2", "num_vocab_tiling=2"),
    "dropout": ("llama2", "enable_dropout=True dropout_rate=0.1"),
}
LAYOUTS = {"scan": "scan_layers=True", "unroll": "scan_layers=False"}
REFUSED = ("gemma4-small-scan", "pipeline-unroll", "outside-unroll")  # by MaxText, in both flavours
PROGRAMS = ("forward", "train_step")
MESHES = ("single", "fsdp4.tensor2", "fsdp4.tensor2-explicit", "data2.fsdp2.expert2", "stage2.fsdp2")


READ = {"input_tokens": "inputs", "positions": "inputs_position", "segment_ids": "inputs_segmentation"}
READ |= {"target_tokens": "targets", "target_mask": "targets_segmentation"}


def config(*settings):
    return pyconfig.initialize(["", *SMALL.split(), *settings])


def inputs(cfg, seed):
    """Packed rows: three segments of random lengths and padding behind them."""
    rng, shapes = np.random.default_rng(seed), maxtext_utils.get_shaped_batch(cfg)
    number = np.sort(rng.integers(0, 4, shapes["inputs"].shape), axis=1)  # 0, 1, 2; 3 is padding
    position = np.arange(number.shape[1]) - np.sum(number[:, None] < number[:, :, None], axis=2)
    packed = {"position": position, "segmentation": (number + 1) % 4}
    batch = {f"{of}_{name}": array for of in ("inputs", "targets") for name, array in packed.items()}
    ends = np.diff(number, axis=1, append=4) != 0  # they have no target
    batch["targets_segmentation"] = np.where(ends, 0, packed["segmentation"])
    batch |= {of: rng.integers(0, cfg.vocab_size, number.shape) for of in ("inputs", "targets")}
    batch |= {name: rng.integers(0, 2, shapes[name].shape) for name in shapes.keys() - batch.keys()}
    return {name: array.astype(np.int32) for name, array in batch.items()}


def linen_side(cfg, mesh):
    model, root = model_creation_utils.from_config(cfg, mesh=mesh), jax.random.PRNGKey(cfg.init_weights_seed)
    optimizer = train_utils.create_training_optimizer(cfg, model)[1]

    def step(placed, state, batch):
        key = jax.random.fold_in(root, state.step)
        return train.train_step(model, cfg, *placed, state, batch, key)

    return types.SimpleNamespace(
        create=lambda key: maxtext_utils.init_initial_state(model, optimizer, cfg, True, key),
        forward=lambda state, **read: model.apply(state.params, **read),
        step=step,
    )


def nnx_side(cfg, mesh):
    abstract = model_creation_utils.create_nnx_abstract_model(cfg, mesh)[1]
    optimizer = train_utils.create_training_optimizer(cfg, abstract)[1]

    def create(key):
        model = model_creation_utils.get_nnx_create_model_fn(cfg, mesh, rng_key=key)()
        return TrainStateNNX(model, nnx.Optimizer(model, optimizer, wrt=nnx.Param))

    return types.SimpleNamespace(
        create=create,
        forward=lambda state, **read: state.model(**read),
        step=lambda placed, state, batch: train.train_step(
            nnx.graphdef(state), cfg, *placed, nnx.state(state), batch
        ),
    )


@functools.cache
def build(flavour, settings, mesh):
    """Returns one side of a case: what MaxText makes of settings on a mesh."""
    is_nnx = flavour is parity.Flavour.NNX
    flags = [f"{flag}={is_nnx}" for flag in ("enable_nnx", "pure_nnx", "pure_nnx_decoder")]
    flags += [f"ici_{axis}_parallelism={n}".replace("stage", "pipeline") for axis, n in mesh.shape.items()]
    explicit = jax.sharding.AxisType.Explicit in mesh.axis_types
    cfg = config(*settings, *flags, f"shard_mode={'explicit' if explicit else 'auto'}")
    ruled = linen.partitioning.axis_rules(cfg.logical_axis_rules)
    side = ruled(nnx_side if is_nnx else linen_side)(cfg, mesh)
    placed = maxtext_utils.get_abstract_state(cfg, mesh, lambda: side.create(jax.random.key(0)))[2]
    of_params, placed = sharding.maybe_update_params_sharding_with_opt(cfg, placed)

    def forward(state, batch):
        read = {f"decoder_{to}": batch[of] for to, of in READ.items()}
        return {"values": {"logits": side.forward(state, **read, enable_dropout=False)}}

    def train_step(state, batch):
        state, metrics = side.step((placed, of_params), state, dict(batch))
        return {"values": metrics["scalar"], "state": state}

    return ruled(parity.nnx_build if is_nnx else parity.linen_build)(
        f"{flavour} {cfg.model_name}",
        ruled(side.create),
        {"forward": (ruled(forward), {}), "train_step": (ruled(train_step), {"steps": 3, "donate": True})},
        specs=lambda state, mesh: jax.tree.map(
            lambda held: sharding.remove_size_one_mesh_axis(held.spec, mesh), placed
        ),
        inputs=functools.partial(inputs, cfg),
        input_specs=lambda batch, mesh: dict.fromkeys(
            batch, sharding.get_input_data_sharding(cfg, mesh, cfg.logical_axis_rules).spec
        ),
    )


def cases(overrides):
    """Returns all families in all programs on all meshes; ``--set`` changes settings of MaxText."""
    axes, found = config().mesh_axes, []
    rows = {**{name: (name, "") for name in FAMILIES}, **DIFFERENCES}
    for (row, (family, more)), layout, program, mesh in itertools.product(
        rows.items(), LAYOUTS, PROGRAMS, MESHES
    ):
        if f"{row}-{layout}" in REFUSED or mesh.startswith("stage") != (family == "pipeline"):
            continue
        if program == "forward" and row in DIFFERENCES:  # they concern train steps
            continue
        settings = f"{FAMILIES[family]} {LAYOUTS[layout]} {more}".split()
        settings += ["=".join(one) for one in overrides.items()]
        spec = parity.MeshSpec.parse(mesh)
        sizes = dict(spec.axes)
        case = parity.Case(
            id=f"{row}-{layout}/{program}@{mesh}",
            reference=functools.partial(build, parity.Flavour.LINEN, tuple(settings)),
            candidate=functools.partial(build, parity.Flavour.NNX, tuple(settings)),
            program=program,
            mesh=parity.MeshSpec(axes=tuple((axis, sizes.get(axis, 1)) for axis in axes), mode=spec.mode),
            fixed_axes=("stage",),
            keys=parity.Keys.INDEPENDENT,
        )
        found.append(case)
    return found


PAIR = parity.Pair(name="maxtext", about="MaxText's decoders, pipelines and train steps", cases=cases)
