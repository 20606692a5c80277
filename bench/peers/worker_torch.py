"""Times PyTorch: a nanoGPT-style model, without a cache (what nanoGPT's generate() does) and with one that grows by
torch.cat; and Hugging Face's GPT-2.

usage: worker_torch.py --model FOLDER --mode naive|cat|hf --threads N --contexts LIST ..."""

import json
import pathlib

import timing
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, d, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x, past):
        batch, n, d = x.shape
        shape = (batch, n, self.n_heads, d // self.n_heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.c_attn(x).split(d, dim=2))
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        # One new token sees everything; several in an empty cache see a triangle.
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=n > 1)
        return self.c_proj(y.transpose(1, 2).reshape(batch, n, d)), (k, v)


class Block(nn.Module):
    def __init__(self, d, n_heads, eps):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d, eps), nn.LayerNorm(d, eps)
        self.attn = Attention(d, n_heads)
        self.c_fc, self.c_proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, past):
        y, now = self.attn(self.ln_1(x), past)
        x = x + y
        return x + self.c_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")), now


class Gpt(nn.Module):
    def __init__(self, config):
        super().__init__()
        d, eps = config["n_embd"], config["layer_norm_epsilon"]
        self.wte = nn.Embedding(config["vocab_size"], d)
        self.wpe = nn.Embedding(config["n_positions"], d)
        self.h = nn.ModuleList(Block(d, config["n_head"], eps) for _ in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(d, eps)
        self.head = nn.Linear(d, config["vocab_size"], bias=False)
        self.head.weight = self.wte.weight

    def hidden(self, ids, past=None):
        """Of every token, before the final norm; and the cache."""
        first = past[0][0].shape[2] if past else 0
        x = self.wte(ids) + self.wpe(torch.arange(first, first + ids.shape[1]))
        cache = []
        for i, block in enumerate(self.h):
            x, now = block(x, past[i] if past else None)
            cache.append(now)
        return x, cache

    def forward(self, ids, past=None):
        x, cache = self.hidden(ids, past)
        return self.head(self.ln_f(x[:, -1])), cache


def load_gpt(tensors, config):
    """Hugging Face's Conv1D matrices are the transposes of nn.Linear's."""
    model = Gpt(config)
    state = {}
    for name, value in tensors.items():
        is_linear = name.startswith("h.") and value.ndim == 2
        state[name.replace(".mlp.", ".")] = value.t().contiguous() if is_linear else value
    state["head.weight"] = state["wte.weight"]
    model.load_state_dict(state)
    return model.eval()


class Naive:
    """The whole text again for every token."""

    def __init__(self, folder, config):
        self.model = load_gpt(load_file(folder / "model.safetensors"), config)

    def fill(self, ids):
        self.ids = ids

    def step(self, new):
        return self.model(torch.cat((self.ids, new), dim=1))[0].argmax(dim=1)

    def undo(self):
        pass


class Cat:
    """Keys and values grow by torch.cat."""

    def __init__(self, folder, config):
        self.model = load_gpt(load_file(folder / "model.safetensors"), config)

    def fill(self, ids):
        self.cache = self.model(ids)[1] if ids.shape[1] else None

    def step(self, new):
        logits, self.grown = self.model(new, self.cache)
        return logits.argmax(dim=1)

    def keep(self):
        self.cache = self.grown

    def undo(self):
        pass


class HuggingFace:
    def __init__(self, folder, config):
        import transformers

        self.version = transformers.__version__
        self.cache_class = transformers.DynamicCache
        transformers.utils.logging.set_verbosity_error()
        self.model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()

    def fill(self, ids):
        self.cache, self.length = self.cache_class(), ids.shape[1]
        if self.length:
            self.run(ids)

    def run(self, ids):
        out = self.model(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1].argmax(dim=1)

    def step(self, new):
        self.n_new = new.shape[1]
        return self.run(new)

    def keep(self):
        self.length += self.n_new

    def undo(self):
        """A negative number is what to remove: all versions agree on that."""
        if self.length:
            self.cache.crop(-self.n_new)
        else:
            self.cache = self.cache_class()


MODES = {"naive": Naive, "cat": Cat, "hf": HuggingFace}


def greedy(engine, ids, n):
    """The first tokens that the model itself would say."""
    engine.fill(ids[:, :-1])
    new, out = ids[:, -1:], []
    for _ in range(n):
        token = engine.step(new)
        out.append(int(token))
        if isinstance(engine, Naive):
            engine.ids = torch.cat((engine.ids, new), dim=1)
        else:
            engine.keep()
        new = token[:, None]
    return out


def main():
    arguments = timing.parse()
    torch.set_num_threads(arguments.threads)
    folder = pathlib.Path(arguments.model)
    config = json.loads((folder / "config.json").read_text())
    n_vocab = config["vocab_size"]
    engine = MODES[arguments.mode](folder, config)

    def ids(n, n_sequences=1):
        rows = [timing.prompt(n, n_vocab, s) for s in range(n_sequences)]
        return torch.tensor(rows, dtype=torch.long).view(n_sequences, n)

    def measure(context, n_new, n_sequences=1):
        every = ids(context + n_new, n_sequences)
        engine.fill(every[:, :context])
        new = every[:, context:]
        return timing.milliseconds(lambda: engine.step(new), engine.undo, arguments.seconds)

    with torch.inference_mode():
        tokens = greedy(engine, ids(16), timing.N_CHECKED)
        decode = {c: measure(c, 1) for c in arguments.contexts}
        prefill = {n: measure(0, n) for n in arguments.prefill}
        batch = {n: measure(16, 1, n) for n in arguments.batch}
    versions = {"torch": torch.__version__}
    capability = torch.backends.cpu.get_cpu_capability()
    if hasattr(engine, "version"):
        versions["transformers"] = engine.version
    timing.answer(
        versions=versions, instructions=capability, tokens=tokens, decode=decode, prefill=prefill, batch=batch
    )


if __name__ == "__main__":
    main()
