"""The same random GPT-2 for every engine: a Hugging Face folder, and GGUF files of each type of weights.

usage: make_model.py FOLDER SIZE TYPE...      (types: f32 f16 bf16 q8_0 q4_0; files that exist are kept)"""

import json
import pathlib
import sys

import gguf
import numpy
from safetensors.numpy import load_file, save_file

SIZES = {  # layers, heads, width, vocabulary, context
    "gpt2": (12, 12, 768, 50257, 1024),
    "gpt2-medium": (24, 16, 1024, 50257, 1024),
    "tiny": (2, 4, 64, 320, 1024),
}
TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
}


def tensors_of(size):
    """GPT-2's parameters with its initialisation: normal, deviation 0.02; also in norms and biases, so that none is
    left out unseen. Linear layers lie as [inputs][outputs], as Hugging Face's Conv1D has them."""
    layers, _, d, vocabulary, context = SIZES[size]
    random = numpy.random.default_rng(1)

    def normal(*shape, mean=0.0):
        return (mean + 0.02 * random.standard_normal(shape)).astype(numpy.float32)

    tensors = {"wte.weight": normal(vocabulary, d), "wpe.weight": normal(context, d)}

    def norm(name):
        tensors[name + ".weight"], tensors[name + ".bias"] = normal(d, mean=1.0), normal(d)

    def linear(name, inputs, outputs):
        tensors[name + ".weight"], tensors[name + ".bias"] = normal(inputs, outputs), normal(outputs)

    for layer in range(layers):
        norm(f"h.{layer}.ln_1")
        linear(f"h.{layer}.attn.c_attn", d, 3 * d)
        linear(f"h.{layer}.attn.c_proj", d, d)
        norm(f"h.{layer}.ln_2")
        linear(f"h.{layer}.mlp.c_fc", d, 4 * d)
        linear(f"h.{layer}.mlp.c_proj", 4 * d, d)
    norm("ln_f")
    return tensors


def config_of(size):
    layers, heads, d, vocabulary, context = SIZES[size]
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_layer": layers,
        "n_head": heads,
        "n_embd": d,
        "vocab_size": vocabulary,
        "n_positions": context,
        "n_ctx": context,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
    }


GGUF_NAMES = {
    "wte": "token_embd",
    "wpe": "position_embd",
    "ln_f": "output_norm",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("h."):
        _, layer, rest = stem.split(".", 2)
        return f"blk.{layer}.{GGUF_NAMES[rest]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def is_matrix(name, values):
    """Whether a type of weights changes it; everything else stays in f32."""
    return values.ndim == 2 and not name.startswith("wpe")


def rows_of(name, values):
    """A matrix as [outputs][inputs], or back again."""
    return values if name.startswith("wte") else numpy.ascontiguousarray(values.T)


def write_gguf(path, size, tensors, kind):
    """Matrices in the given type, everything else in f32; without a vocabulary, which only ids need."""
    layers, heads, d, vocabulary, context = SIZES[size]
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(context)
    writer.add_embedding_length(d)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(4 * d)
    writer.add_head_count(heads)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("no_vocab")
    for name, values in tensors.items():
        if is_matrix(name, values):
            values = rows_of(name, values)
        if is_matrix(name, values) and kind != "f32":
            packed = gguf.quants.quantize(values, TYPES[kind])
            writer.add_tensor(gguf_name(name), packed, raw_dtype=TYPES[kind])
        else:
            writer.add_tensor(gguf_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(folder, size, *kinds):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / "model.safetensors"
    if not weights.exists():
        save_file(tensors_of(size), weights, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config_of(size), indent=1))
    tensors = None
    for kind in kinds:
        path = folder / f"{kind}.gguf"
        if path.exists():
            continue
        tensors = tensors or load_file(weights)
        unfinished = path.with_suffix(".part")
        write_gguf(unfinished, size, tensors, kind)
        unfinished.rename(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
