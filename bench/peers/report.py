"""From what the engines said to medians, ratios and tables."""

import statistics

import timing

KINDS = ("decode", "prefill", "batch")
PEERS = ("llama.cpp", "nanoGPT, no cache", "nanoGPT, torch.cat", "HF transformers")
ORDER = ("f32", "bf16", "q8", "q4", "f16", "kvad", "llama.cpp, flash attention", *PEERS)
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
        row |= {"ceilings": bench["ceilings"], **head_of_kvad(bench)}
        keys = {"decode": "context", "prefill": "tokens", "batch": "sequences"}
        for kind in KINDS:
            cases = [case for case in bench[kind] if case["kv"] == kv]
            row[kind] = {str(case[keys[kind]]): case["samples_ms"] for case in cases}
            row[kind + "_percent"] = {str(case[keys[kind]]): case["percent_of_ceiling"] for case in cases}
        rows.append(row)
    return rows


def head_of_kvad(bench):
    """What does not depend on what was measured."""
    return {"machine": bench["machine"], "versions": {"kvad": bench["version"]}, "level": bench["engine"]["cpu"]}


def of_worker(name, weights, cache, said):
    return {"engine": name, "weights": weights, "cache": cache, **said}


def quartiles(values):
    if len(values) < 2:
        return [values[0], values[0]]
    cut = statistics.quantiles(values, n=4, method="inclusive")
    return [cut[0], cut[2]]


def merge(rows, kind):
    """{size: each round's median, their median and quartiles, and of kvad the share of its ceiling}"""
    merged = {}
    for size in dict.fromkeys(size for row in rows for size in row[kind]):
        having = [row for row in rows if size in row[kind]]
        by_round = {row["round"]: statistics.median(row[kind][size]) for row in having}
        medians = list(by_round.values())
        merged[size] = {"ms": statistics.median(medians), "quartiles_ms": quartiles(medians), "rounds_ms": by_round}
        if kind + "_percent" in rows[0]:
            shares = [row[kind + "_percent"][size] for row in having]
            merged[size]["percent_of_ceiling"] = statistics.median(shares)
            merged[size]["percent_quartiles"] = quartiles(shares)
    return merged


def summary(rows, arguments, versions, about):
    """`about` is kvad's head, for results that no run of kvad is among."""
    rounds, errors = [row for row in rows if "round" in row], [row for row in rows if "errors" in row]
    groups = {}
    for row in rounds:
        groups.setdefault((row["engine"], row["weights"], row["cache"]), []).append(row)
    engines = []
    for (engine, weights, cache), of_one in groups.items():
        entry = {"engine": engine, "weights": weights, "cache": cache, "tokens": of_one[0]["tokens"]}
        entry["rounds"] = len(of_one)
        for kind in KINDS:
            entry[kind] = merge(of_one, kind)
        engines.append(entry)
    kvad = [row for row in rounds if row["engine"] == "kvad"]
    result = {"schema": 2, "model": arguments.size, "threads": arguments.threads, "isa": arguments.isa}
    result["rounds"] = max(map(len, groups.values()), default=0)
    about = kvad[0] if kvad else about
    result["versions"] = {"kvad": about.get("versions", {}).get("kvad"), **versions}
    result["machine"], result["level"] = about.get("machine", {}), about.get("level")
    result["instructions"] = {row["engine"]: row["instructions"] for row in rounds if "instructions" in row}
    result["ceilings"] = ceilings(kvad)
    result["engines"] = sorted(engines, key=order)
    result["ratios"] = ratios(result["engines"])
    result["errors"] = sorted(errors, key=order)
    return result


def order(entry):
    """Types of weights as ORDER has them, engines as they first appear there; rounds run in both directions."""
    return ORDER.index(entry["weights"]), ORDER.index(entry["engine"]), ORDER.index(entry["cache"])


def ceilings(rows):
    """Medians for each type of weights, with their quartiles: a smaller model may lie in a cache."""
    of_run = {(row["weights"], row["round"]): row["ceilings"] for row in sorted(rows, key=order)}
    by_type = {}
    for (weights, _), measured in of_run.items():
        by_type.setdefault(weights, []).append(measured)
    return {
        weights: {key: middle([c[key] for c in all_of_type]) for key in all_of_type[0]}
        for weights, all_of_type in by_type.items()
    }


def middle(values):
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"median": statistics.median(known), "quartiles": quartiles(known), "rounds": len(known)}


def best(engines, prefix, weights, kind, size):
    """The fastest entry of an engine whose name begins so: every engine at its best setting."""
    cells = [
        e[kind][size]
        for e in engines
        if e["engine"].startswith(prefix) and e["weights"] == weights and size in e[kind]
    ]
    return min(cells, key=lambda cell: cell["ms"], default=None)


def times_faster(own, other):
    """Of what was measured in the same round, minutes apart at most: memory is faster in one minute than in another."""
    common = own["rounds_ms"].keys() & other["rounds_ms"].keys()
    times = [other["rounds_ms"][n] / own["rounds_ms"][n] for n in common]
    return {"median": statistics.median(times), "quartiles": quartiles(times), "rounds": len(times)} if times else None


def ratios(engines):
    """How many times faster kvad is, each at its best setting."""
    rows = []
    for weights in dict.fromkeys(e["weights"] for e in engines):
        for kind in KINDS:
            for size in dict.fromkeys(size for e in engines if e["weights"] == weights for size in e[kind]):
                own = best(engines, "kvad", weights, kind, size)
                others = {name: best(engines, name, weights, kind, size) for name in PEERS}
                if own:
                    times = {name: times_faster(own, other) for name, other in others.items() if other}
                    rows.append({"weights": weights, "kind": kind, "size": size, "times_faster": times})
    return rows


# ---------------------------------------------------------------- text


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def with_spread(text, middle, quartiles, rounds):
    """One round has none."""
    return f"{text} ±{50 * (quartiles[1] - quartiles[0]) / middle:.0f}%" if rounds > 1 else text


def speed(kind, size, entry):
    return f"{entry['ms']:.2f}" if kind == "decode" else f"{1e3 * int(size) / entry['ms']:.0f}"


def value_text(kind, size, entry):
    rounds = len(entry["rounds_ms"])
    text = with_spread(speed(kind, size, entry), entry["ms"], entry["quartiles_ms"], rounds)
    if "percent_of_ceiling" in entry:
        text += f" ({entry['percent_of_ceiling']:.0f} % of ceiling)"
    return text


def ratio_text(times, rounds):
    """With the number of rounds where not all had both."""
    if not times:
        return "-"
    fewer = f" ({times['rounds']})" if times["rounds"] < rounds else ""
    return with_spread(f"{times['median']:.2f}", times["median"], times["quartiles"], times["rounds"]) + fewer


def head(result):
    machine = result["machine"]
    caches = ", ".join(
        f"L{c['level']} {c['bytes'] >> 10} KiB" for c in machine.get("caches", []) if c["kind"] != "Instruction"
    )
    limit = "" if result["isa"] == "native" else f", all engines held to {result['isa'].upper()}"
    return [
        f"# {result['model']} on {machine.get('cpu', 'an unknown CPU')}, {result['threads']} threads{limit}",
        "",
        f"{result['date']}; {machine.get('cores', '?')} cores{' (virtual)' if machine.get('virtual') else ''}, "
        f"{caches}, {machine.get('memory_bytes', 0) / 2**30:.1f} GiB of memory, "
        f"huge pages {machine.get('huge_pages', '?')}, "
        f"kernels {result['level']}.",
        "",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in result["versions"].items()) + ".",
        *instructions(result),
        f"{rules(result)}Random weights, the same for all; every engine draws a greedy token from the logits. "
        "`bench/peers/run.py` made this file.",
        "",
    ]


def rules(result):
    """How the numbers came about."""
    if not result["rounds"]:
        return ""
    return (
        f"Medians over up to {result['rounds']} rounds (column `rounds`), in each of which every engine ran once, in "
        "every second one in reverse; ± is half the distance of the quartiles of the rounds. "
    )


def instructions(result):
    """What the engines say they use."""
    said = {}
    for engine, text in result["instructions"].items():
        said.setdefault(text.replace(" = 1", "").replace(" |", ""), []).append(engine)
    return [f"{' and '.join(sorted(names))}: {text}." for text, names in said.items()]


def ceiling_text(ceiling):
    if not ceiling:
        return "-"
    middle = ceiling["median"]
    return with_spread(f"{middle:.1f}", middle, ceiling["quartiles"], ceiling["rounds"])


def ceiling_table(result):
    keys = ("read_gb_s", "fma_gflop_s", "int8_gop_s")
    rows = [[weights, *(ceiling_text(c[key]) for key in keys)] for weights, c in result["ceilings"].items()]
    return table(["weights", "read GB/s", "FMA GFLOP/s", "int8 GOP/s"], rows)


def markdown(result):
    lines = head(result)
    if result["ceilings"]:
        lines += ["## Ceilings, measured by kvad between its samples", "", ceiling_table(result), ""]
    for kind in KINDS:
        sizes = sorted({size for e in result["engines"] for size in e[kind]}, key=int)
        if not sizes:
            continue
        rows = [
            [e["weights"], e["engine"], e["cache"], str(e["rounds"])]
            + [value_text(kind, size, e[kind][size]) if size in e[kind] else "-" for size in sizes]
            for e in result["engines"]
        ]
        lines += [f"## {HEADS[kind]}", "", table(["weights", "engine", "cache", "rounds", *sizes], rows), ""]
    if result["ratios"]:
        lines += ["## How many times faster kvad is, each engine at its best setting", ""]
        lines += ["Medians of the rounds' ratios; in brackets how many rounds, where not all.", ""]
        lines += [ratio_table(result), ""]
    if result["errors"]:
        lines += [*error_lines(result), ""]
    return "\n".join([*lines, *agreement(result)])


def ratio_table(result):
    names = list(dict.fromkeys(name for row in result["ratios"] for name in row["times_faster"]))
    rows = [
        [row["weights"], f"{row['kind']} {row['size']}"]
        + [ratio_text(row["times_faster"].get(name), result["rounds"]) for name in names]
        for row in result["ratios"]
    ]
    return table(["weights", "what", *names], rows)


def error_lines(result):
    """Speed and error side by side: logits against a float64 pass, the smallest context and the longest prompt."""
    logits_rms = result["errors"][0]["errors"]["logits_rms"]
    lines = [
        "## Speed beside error",
        "",
        f"Errors of {timing.N_SCORED} tokens' logits (their root mean square is {logits_rms:.2f}) against a float64 "
        "pass over the unrounded weights: what a user of the type pays in all; and against one over the same rounded "
        "weights: what the engine's arithmetic and its cache add to that.",
        "",
    ]
    columns = ["weights", "engine", "cache", "way", "ms per token", "prompt tokens/s"]
    columns += ["error RMS", "max", "arithmetic alone RMS", "max", "KL divergence", "same best token"]
    rows = []
    for row in result["errors"]:
        e = row["errors"]
        fields = [row["weights"], row["engine"], row["cache"], row["way"], *speeds(result, row)]
        fields += [f"{e[key]:.1e}" for key in ("rms", "max", "arithmetic_rms", "arithmetic_max", "kl")]
        rows.append([*fields, f"{e['top1_percent']:.1f} %"])
    return [*lines, table(columns, rows)]


def speeds(result, row):
    """Milliseconds per token and tokens per second of the engine whose errors these are, where the way of reading is
    the one that was timed."""
    key = ("engine", "weights", "cache")
    entry = next((e for e in result["engines"] if all(e[k] == row[k] for k in key)), {})
    texts = []
    for kind, other_way, choose in (("decode", "prompt at once", min), ("prefill", "token by token", max)):
        cells = entry.get(kind)
        if cells and row["way"] != other_way:
            size = choose(cells, key=int)
            texts.append(speed(kind, size, cells[size]))
        else:
            texts.append("-")
    return texts


def agreement(result):
    """Whether all engines with unrounded weights said the same."""
    said = {e["engine"]: e["tokens"] for e in result["engines"] if e["weights"] == "f32" and e["tokens"]}
    if len(said) < 2:
        return []
    if len({tuple(tokens) for tokens in said.values()}) == 1:
        return [f"The first greedy tokens in f32 are the same in all of: {', '.join(said)}.", ""]
    different = "; ".join(f"{name} {tokens}" for name, tokens in said.items())
    return [f"The first greedy tokens in f32 differ: {different}.", ""]
