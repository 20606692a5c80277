#!/usr/bin/env python3
"""Where the time of a step goes in eager PyTorch: in kernels, or in what surrounds them (Python, the dispatcher, views,
allocations). An article says that the latter is why a cache does not save as much time as operations.

usage: profile_torch.py --model FOLDER [--threads N] [--contexts 16,1000] [--seconds S] [--out FOLDER]

FOLDER is a Hugging Face folder, such as bench/peers/make_model.py writes. Two ways: the time outside kernels by
PyTorch's profiler, which is too much by what the profiler itself takes; and a model with as many layers and calls but
almost nothing to compute, whose whole step is overhead. It is not part of `make check`: it needs PyTorch."""

import argparse
import datetime
import json
import pathlib
import re
import statistics
import tempfile
import time

import timing
import torch
import worker_torch
from safetensors.torch import save_file
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"
MODES = {"naive": "no cache", "cat": "cache grown by torch.cat"}
# What computes or moves numbers; every other operator is a view, an allocation or a step of the dispatcher.
KERNELS = set(
    """addmm mm bmm baddbmm native_layer_norm gelu cat add add_ mul mul_ div div_ sub copy_ clone _softmax masked_fill
    masked_fill_ index_select embedding argmax _scaled_dot_product_flash_attention_for_cpu tril fill_ zero_ where eq
    arange""".split()
)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--contexts", type=timing.numbers, default=[16, 1000])
    parser.add_argument("--seconds", type=float, default=2, help="how long each measurement lasts at least")
    parser.add_argument("--out", default=RESULTS, type=pathlib.Path)
    return parser.parse_args()


def fused(q, k, v, is_causal, attention=torch.nn.functional.scaled_dot_product_attention):
    with record_function("attention"):
        return attention(q, k, v, is_causal=is_causal)


def by_hand(q, k, v, is_causal):
    """Scores, mask, softmax and sums as tutorials write them."""
    with record_function("attention"):
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if is_causal:
            n = scores.shape[-1]
            scores = scores.masked_fill(torch.tril(torch.ones(n, n)) == 0, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v


ATTENTIONS = {"fused": fused, "by hand": by_hand}


class Functional:
    """torch.nn.functional with another attention."""

    def __init__(self, attention):
        self.scaled_dot_product_attention = attention

    def __getattr__(self, name):
        return getattr(torch.nn.functional, name)


def empty_model(folder, config):
    """As many layers and heads, of one number each."""
    config = {**config, "n_embd": config["n_head"], "vocab_size": 16}
    torch.manual_seed(1)
    gpt = worker_torch.Gpt(config)
    state = {}
    for name, value in gpt.state_dict().items():
        if name == "head.weight":
            continue
        name = re.sub(r"\.(c_fc|c_proj)\.", r".mlp.\1.", name) if ".attn." not in name else name
        is_linear = name.startswith("h.") and value.ndim == 2
        state[name] = (value.t() if is_linear else value).contiguous().clone()
    save_file(state, folder / "model.safetensors")
    return config


def step_of(engine, config, context):
    rows = torch.tensor([timing.prompt(context + 1, config["vocab_size"])], dtype=torch.long)
    engine.fill(rows[:, :context])
    new = rows[:, context:]
    return lambda: engine.step(new)


def kernel_shares(step, n):
    """Of a step in per cent of its time under the profiler: by kernel, and attention with all that it calls."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
        start = time.perf_counter()
        for _ in range(n):
            step()
        wall = (time.perf_counter() - start) * 1e6 * (n + 1) / n
    kernels, attention = {}, 0
    for event in profiler.key_averages():
        name = event.key.removeprefix("aten::")
        if event.key == "attention":
            attention += event.cpu_time_total
        elif name in KERNELS:
            kernels[name] = kernels.get(name, 0) + event.self_cpu_time_total
    kernels = {name: 100 * us / wall for name, us in sorted(kernels.items(), key=lambda pair: -pair[1])}
    return kernels, 100 * attention / wall, wall * 1e-3 / (n + 1)


def flops_of(step):
    counter = FlopCounterMode(display=False)
    with counter:
        step()
    return counter.get_total_flops()


def measure(engine, config, context, seconds):
    step = step_of(engine, config, context)
    ms = statistics.median(timing.milliseconds(step, engine.undo, seconds))
    n = max(3, min(200, int(seconds * 1e3 / ms)))
    kernels, attention, profiled_ms = kernel_shares(step, n)
    named = sum(kernels.values())
    return {
        "ms": ms,
        "flops": flops_of(step),
        "profiled_ms": profiled_ms,
        "kernel_percent": named,
        "overhead_percent": 100 - named,
        "attention_percent": attention,
        "kernels_percent": {name: round(percent, 3) for name, percent in kernels.items()},
    }


def gap_of(naive, cached, empty_ms):
    """What the cached step takes beyond its operations at the naive step's rate, and how much of it is overhead."""
    ideal = naive["ms"] * cached["flops"] / naive["flops"]
    gap = cached["ms"] - ideal
    overhead = cached["ms"] * cached["overhead_percent"] / 100
    return {
        "flop_ratio": naive["flops"] / cached["flops"],
        "time_ratio": naive["ms"] / cached["ms"],
        "gap_ms": gap,
        "overhead_percent_of_gap": 100 * overhead / gap,
        "empty_step_percent_of_gap": 100 * empty_ms / gap,
    }


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown CPU"


def run(arguments, config, empty_folder):
    empty_config = empty_model(empty_folder, config)
    result = {"steps": [], "empty_steps": [], "gaps": []}
    kernel_shares(lambda: torch.ones(2) + 1, 3)  # the first use of the profiler takes its time
    for attention, function in ATTENTIONS.items():
        worker_torch.functional = Functional(function)
        engines = {mode: worker_torch.MODES[mode](arguments.model, config) for mode in MODES}
        empty = worker_torch.MODES["cat"](empty_folder, empty_config)
        for context in arguments.contexts:
            rows = {m: measure(e, config, context, arguments.seconds) for m, e in engines.items()}
            step = step_of(empty, empty_config, context)
            empty_ms = statistics.median(timing.milliseconds(step, empty.undo, arguments.seconds))
            where = {"attention": attention, "context": context}
            result["steps"] += [{"mode": mode, **where, **row} for mode, row in rows.items()]
            result["empty_steps"].append({**where, "ms": empty_ms})
            result["gaps"].append({**where, **gap_of(rows["naive"], rows["cat"], empty_ms)})
    return result


def markdown(result):
    lines = [
        f"# Eager PyTorch {result['torch']}: kernels and overhead",
        "",
        f"{result['date']}; {result['model']}, float32, greedy, one sequence, {result['threads']} threads, "
        f"{result['cpu']}. `bench/peers/profile_torch.py` made this file.",
        "",
        "| cache | attention | context | ms per step | in kernels | overhead | attention's share |",
        "|---|---|---|---|---|---|---|",
    ]
    for s in result["steps"]:
        lines.append(
            f"| {MODES[s['mode']]} | {s['attention']} | {s['context']} | {s['ms']:.2f} | {s['kernel_percent']:.0f} % | "
            f"{s['overhead_percent']:.0f} % | {s['attention_percent']:.0f} % |"
        )
    lines += [
        "",
        "What the cached step takes beyond its operations at the naive step's rate is the gap. How much of it is "
        "overhead by the profiler (at most: it counts itself) and by a model of as many layers with nothing in them:",
        "",
        "| attention | context | fewer operations | faster | gap ms | overhead | empty step ms | of the gap |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for gap, empty in zip(result["gaps"], result["empty_steps"], strict=True):
        lines.append(
            f"| {gap['attention']} | {gap['context']} | {gap['flop_ratio']:.0f} times | "
            f"{gap['time_ratio']:.1f} times | {gap['gap_ms']:.1f} | {gap['overhead_percent_of_gap']:.0f} % | "
            f"{empty['ms']:.2f} | {gap['empty_step_percent_of_gap']:.0f} % |"
        )
    return "\n".join([*lines, ""])


def main():
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    config = json.loads((arguments.model / "config.json").read_text())
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        result = run(arguments, config, pathlib.Path(folder))
    date, cpu = datetime.date.today().isoformat(), cpu_name()
    head = {"date": date, "cpu": cpu, "model": arguments.model.name, "torch": torch.__version__}
    result = {**head, "threads": arguments.threads, **result}
    arguments.out.mkdir(parents=True, exist_ok=True)
    short = re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-")
    name = f"{date}-{short}-{arguments.model.name}-torch-profile"
    (arguments.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    (arguments.out / f"{name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
