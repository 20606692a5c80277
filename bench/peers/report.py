"""From what the engines said to medians, ratios and tables."""

import statistics

KINDS = ("decode", "prefill", "batch")
HEADS = {
    "decode": "Decode, batch 1: milliseconds per token at a context",
    "prefill": "Prefill: tokens per second of a prompt",
    "batch": "Batches, 16 tokens back: tokens per second over all sequences",
}


def of_kvad(bench, tokens):
    """kvad bench --json as rows like those of the workers: one for each type of cache."""
    if bench["void"]:
        raise RuntimeError(f"kvad's run is void: {bench['void']}")
    rows = []
    for kv in sorted({case["kv"] for case in bench["decode"]}, reverse=True):
        row = {"engine": "kvad", "weights": bench["decode"][0]["weights"], "cache": kv, "tokens": tokens}
        row["machine"], row["ceilings"] = bench["machine"], bench["ceilings"]
        row["versions"], row["level"] = {"kvad": bench["version"]}, bench["engine"]["cpu"]
        keys = {"decode": "context", "prefill": "tokens", "batch": "sequences"}
        for kind in KINDS:
            cases = [case for case in bench[kind] if case["kv"] == kv]
            row[kind] = {str(case[keys[kind]]): case["samples_ms"] for case in cases}
            row[kind + "_percent"] = {str(case[keys[kind]]): case["percent_of_ceiling"] for case in cases}
        rows.append(row)
    return rows


def of_worker(name, weights, cache, said):
    return {"engine": name, "weights": weights, "cache": cache, **said}


def quartiles(values):
    if len(values) < 2:
        return [values[0], values[0]]
    cut = statistics.quantiles(values, n=4, method="inclusive")
    return [cut[0], cut[2]]


def merge(rows, kind):
    """{size: median over the rounds of each round's median, quartiles, and of kvad the share of its ceiling}"""
    merged = {}
    for size in rows[0][kind]:
        medians = [statistics.median(row[kind][size]) for row in rows]
        merged[size] = {"ms": statistics.median(medians), "quartiles_ms": quartiles(medians), "rounds": len(rows)}
        if kind + "_percent" in rows[0]:
            merged[size]["percent_of_ceiling"] = statistics.median(row[kind + "_percent"][size] for row in rows)
    return merged


def summary(rounds, arguments, versions):
    groups = {}
    for row in rounds:
        groups.setdefault((row["engine"], row["weights"], row["cache"]), []).append(row)
    engines = []
    for (engine, weights, cache), rows in groups.items():
        entry = {"engine": engine, "weights": weights, "cache": cache, "tokens": rows[0]["tokens"]}
        for kind in KINDS:
            entry[kind] = merge(rows, kind)
        engines.append(entry)
    kvad = [row for row in rounds if row["engine"] == "kvad"]
    result = {"schema": 1, "model": arguments.size, "threads": arguments.threads}
    result["rounds"] = max(map(len, groups.values()))
    result["versions"] = {"kvad": kvad[0]["versions"]["kvad"] if kvad else None, **versions}
    result["machine"] = kvad[0]["machine"] if kvad else {}
    result["level"] = kvad[0]["level"] if kvad else None
    result["ceilings"] = ceilings(kvad)
    result["engines"] = engines
    result["ratios"] = ratios(engines)
    return result


def ceilings(rows):
    """Medians for each type of weights: a smaller model may lie in a cache."""
    by_type = {}
    for row in rows:
        by_type.setdefault(row["weights"], []).append(row["ceilings"])
    return {
        weights: {key: middle([c[key] for c in all_of_type]) for key in all_of_type[0]}
        for weights, all_of_type in by_type.items()
    }


def middle(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def best(engines, prefix, weights, kind, size):
    """The fastest entry of an engine whose name begins so: every engine at its best setting."""
    times = [
        e[kind][size]["ms"]
        for e in engines
        if e["engine"].startswith(prefix) and e["weights"] == weights and size in e[kind]
    ]
    return min(times, default=None)


def ratios(engines):
    """How many times faster kvad is, each at its best setting."""
    rows = []
    for weights in dict.fromkeys(e["weights"] for e in engines):
        for kind in KINDS:
            sizes = dict.fromkeys(size for e in engines if e["weights"] == weights for size in e[kind])
            for size in sizes:
                own = best(engines, "kvad", weights, kind, size)
                others = {
                    name: best(engines, name, weights, kind, size)
                    for name in ("llama.cpp", "nanoGPT, no cache", "nanoGPT, torch.cat", "HF transformers")
                }
                if own:
                    times = {name: other / own for name, other in others.items() if other}
                    rows.append({"weights": weights, "kind": kind, "size": size, "times_faster": times})
    return rows


# ---------------------------------------------------------------- text


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def value_text(kind, size, entry):
    low, high = entry["quartiles_ms"]
    spread = 50 * (high - low) / entry["ms"]
    if kind == "decode":
        text = f"{entry['ms']:.2f}"
    else:
        text = f"{1e3 * int(size) / entry['ms']:.0f}"
    text += f" ±{spread:.0f}%"
    if "percent_of_ceiling" in entry:
        text += f" ({entry['percent_of_ceiling']:.0f} % of ceiling)"
    return text


def markdown(result):
    machine = result["machine"]
    caches = ", ".join(
        f"L{c['level']} {c['bytes'] >> 10} KiB" for c in machine.get("caches", []) if c["kind"] != "Instruction"
    )
    lines = [
        f"# {result['model']} on {machine.get('cpu', 'an unknown CPU')}, {result['threads']} threads",
        "",
        f"{result['date']}; {machine.get('cores', '?')} cores{' (virtual)' if machine.get('virtual') else ''}, "
        f"{caches}, {machine.get('memory_bytes', 0) / 2**30:.1f} GiB of memory, "
        f"huge pages {machine.get('huge_pages', '?')}, "
        f"kernels {result['level']}.",
        "",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in result["versions"].items()) + ".",
        f"Medians over {result['rounds']} rounds, in each of which every engine ran once; ± is half the distance of "
        "the quartiles. Random weights, the same for all; every engine draws a greedy token from the logits. "
        "`bench/peers/run.py` made this file.",
        "",
        "## Ceilings, measured by kvad between its samples",
        "",
        table(
            ["weights", "read GB/s", "FMA GFLOP/s", "int8 GOP/s"],
            [
                [weights, *(f"{c[k]:.1f}" if c[k] else "-" for k in ("read_gb_s", "fma_gflop_s", "int8_gop_s"))]
                for weights, c in result["ceilings"].items()
            ],
        ),
    ]
    for kind in KINDS:
        sizes = list(dict.fromkeys(size for e in result["engines"] for size in e[kind]))
        if not sizes:
            continue
        rows = [
            [e["weights"], e["engine"], e["cache"]]
            + [value_text(kind, size, e[kind][size]) if size in e[kind] else "-" for size in sizes]
            for e in result["engines"]
        ]
        lines += ["", f"## {HEADS[kind]}", "", table(["weights", "engine", "cache", *sizes], rows)]
    lines += ["", "## How many times faster kvad is, each engine at its best setting", "", ratio_table(result)]
    lines += ["", agreement(result), ""]
    return "\n".join(lines)


def ratio_table(result):
    names = list(dict.fromkeys(name for row in result["ratios"] for name in row["times_faster"]))
    rows = [
        [row["weights"], f"{row['kind']} {row['size']}"]
        + [f"{row['times_faster'][name]:.2f}" if name in row["times_faster"] else "-" for name in names]
        for row in result["ratios"]
    ]
    return table(["weights", "what", *names], rows)


def agreement(result):
    """Whether all engines with unrounded weights said the same."""
    said = {e["engine"]: e["tokens"] for e in result["engines"] if e["weights"] == "f32" and e["tokens"]}
    if len({tuple(tokens) for tokens in said.values()}) <= 1:
        return f"The first greedy tokens in f32 are the same in all of: {', '.join(said)}."
    different = "; ".join(f"{name} {tokens}" for name, tokens in said.items())
    return f"The first greedy tokens in f32 differ: {different}."
