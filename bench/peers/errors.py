"""How far logits are from those of a forward pass in float64: in all, and without what rounding the weights costs.

usage: errors.py FOLDER TYPE FILE.npy...      (TYPE: of weights, as make_model.py names it)

FOLDER is the Hugging Face folder that the GGUF files were made from. A file holds [N_SCORED][vocabulary] or several of
these, the logits of timing.prompt(). Prints a list with an object for each file's each array. The float64 pass is
PyTorch's, so that no engine is measured with its own ruler."""

import json
import pathlib
import sys

import gguf
import make_model
import numpy
import timing
import torch
import worker_torch
from safetensors.numpy import load_file


def rounded(tensors, kind):
    """What weights of that type say, exactly."""
    if kind == "f32":
        return tensors
    out, code = {}, make_model.TYPES[kind]
    for name, values in tensors.items():
        if make_model.is_matrix(name, values):
            packed = gguf.quants.quantize(make_model.rows_of(name, values), code)
            values = make_model.rows_of(name, gguf.quants.dequantize(packed, code))
        out[name] = values
    return out


def reference(tensors, config):
    """[N_SCORED][vocabulary] in float64."""
    model = worker_torch.load_gpt({name: torch.from_numpy(values) for name, values in tensors.items()}, config)
    model = model.double()
    ids = torch.tensor([timing.prompt(timing.N_SCORED, config["vocab_size"])])
    with torch.inference_mode():
        hidden, _ = model.hidden(ids)
        return model.head(model.ln_f(hidden))[0].numpy()


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(axis=1, keepdims=True))


def compare(logits, exact, same_weights):
    logits = logits.astype(numpy.float64)
    error, arithmetic = logits - exact, logits - same_weights
    p, q = log_softmax(exact), log_softmax(logits)
    return {
        "rms": numpy.sqrt((error**2).mean()),
        "max": numpy.abs(error).max(),
        "arithmetic_rms": numpy.sqrt((arithmetic**2).mean()),
        "arithmetic_max": numpy.abs(arithmetic).max(),
        "kl": (numpy.exp(p) * (p - q)).sum(axis=1).mean(),
        "top1_percent": 100 * (logits.argmax(axis=1) == exact.argmax(axis=1)).mean(),
        "logits_rms": numpy.sqrt((exact**2).mean()),
    }


def main(folder, kind, *files):
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    exact = reference(tensors, config)
    same_weights = exact if kind == "f32" else reference(rounded(tensors, kind), config)
    shape = (-1, *exact.shape)
    found = [[compare(part, exact, same_weights) for part in numpy.load(file).reshape(shape)] for file in files]
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
