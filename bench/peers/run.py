#!/usr/bin/env python3
"""Runs kvad and other engines in turn on the same random weights and the same threads, and writes a table of ratios.

usage: bench/peers/run.py [--threads N] [--rounds N] [--size gpt2] [--only NAME ...] [--skip NAME ...] [--isa avx2]
                          [--errors] [--kvad PATH] [--out FOLDER] [--rows FILE]

It installs the engines from PyPI into build/peers/venv (some gigabytes; llama.cpp is compiled, which takes seven
minutes of a core), writes the weights there once, and takes half an hour for GPT-2 124M. Nothing else should run
meanwhile. --rounds 0 installs and measures nothing. Each round runs every engine once,
every second one in reverse, so that a slow minute hits all alike; what counts is the median over the rounds, of times
and of each round's ratios. With --rows the run may be had in pieces (a round, a type of weights): each adds to FILE,
and the tables are made of all that it holds.

--isa avx2 holds every engine to AVX2 and FMA: kvad by --cpu avx2, PyTorch by ATEN_CPU_CAPABILITY and its libraries'
variables, llama.cpp by a second build in build/peers/venv-avx2.

--errors measures also how far the logits of kvad and llama.cpp are from float64 (errors.py), so that speed can be
compared at equal error; with --rounds 0 that alone."""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import report
import timing

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "peers"
TYPES = {"f32": "f32", "bf16": "bf16", "q8": "q8_0", "q4": "q4_0"}  # kvad's names and GGUF's
CHECKED_PROMPT = 16
AVX2_ENVIRONMENT = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
AVX2_BUILD = " ".join(
    f"-DGGML_{name}"
    for name in ("NATIVE=OFF", "AVX=ON", "AVX2=ON", "FMA=ON", "F16C=ON", "BMI2=ON", "AVX512=OFF", "AVX_VNNI=OFF")
)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", default="gpt2", help="gpt2, gpt2-medium, or tiny to try the script out")
    parser.add_argument("--contexts", default="16,512,900,1000")
    parser.add_argument("--prefill", default="512")
    parser.add_argument("--batch", default="16")
    parser.add_argument("--weights", default=",".join(TYPES))
    parser.add_argument("--only", nargs="+", default=[""], help="engines whose names begin so: kvad, llama.cpp, HF ...")
    parser.add_argument("--skip", nargs="+", default=[], help="not these, for instance 'nanoGPT, no cache'")
    parser.add_argument("--isa", choices=["native", "avx2"], default="native", help="what all engines may use")
    parser.add_argument("--errors", action="store_true", help="compare logits with float64")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long one sample lasts at least")
    parser.add_argument("--rows", type=pathlib.Path, help="add what was measured to this file of JSON lines")
    parser.add_argument("--kvad", default=ROOT / "build/release/cli/kvad", type=pathlib.Path)
    parser.add_argument("--out", default=HERE.parent / "results", type=pathlib.Path)
    return parser.parse_args()


def install_into(venv, stamp, wanted, requirements, build):
    """A virtual environment with these requirements, llama.cpp compiled so; its Python."""
    python = WORK / venv / "bin/python"
    stamp = WORK / stamp
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"Installing into build/peers/{venv} (this compiles llama.cpp) ...", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", WORK / venv], check=True)
    # Images are of no use here and take half of the time to compile. pip's cache knows nothing of how a package was
    # compiled: it would hand one build to both environments.
    environment = {**os.environ, "CMAKE_ARGS": f"-DLLAVA_BUILD=OFF {build}".strip()}
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-cache-dir", *requirements], check=True, env=environment
    )
    stamp.write_text(wanted)
    return python


def versions_of(python):
    said = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, check=True).stdout
    return {package["name"].replace("-", "_"): package["version"] for package in json.loads(said)}


def install(isa):
    """The Pythons of all engines and of llama.cpp, which cannot be told at run time what to use; versions."""
    wanted = (HERE / "requirements.txt").read_text()
    python = install_into("venv", "installed.txt", wanted, ["-r", HERE / "requirements.txt"], "")
    versions = versions_of(python)
    if isa == "native":
        return python, python, versions
    same = f"llama-cpp-python=={versions['llama_cpp_python']}"
    wanted = f"{same} {AVX2_BUILD}\n"
    return python, install_into("venv-avx2", "installed-avx2.txt", wanted, [same, "numpy"], AVX2_BUILD), versions


def output_of(command, arguments):
    """Standard output of a command that sees nothing of the caller's settings of threads and instructions; None after a
    failure, whose reason has been printed."""
    ours = ("KVAD_", "OMP_", "MKL_", "OPENBLAS_", "ATEN_", "ONEDNN_", "DNNL_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environment["OMP_NUM_THREADS"] = str(arguments.threads)
    if arguments.isa == "avx2":
        environment.update(AVX2_ENVIRONMENT)
    done = subprocess.run([str(c) for c in command], capture_output=True, env=environment, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    shown = " ".join(map(str, command[:3]))
    print(f"\n{shown} ...: exit code {done.returncode}\n{done.stderr[-800:]}", file=sys.stderr)
    return None


class Kvad:
    """One type of weights with f32 and f16 caches."""

    def __init__(self, arguments, folder, weights):
        self.name, self.weights = "kvad", weights
        self.arguments, self.folder = arguments, folder
        self.common = ["--weights", weights, "--threads", arguments.threads, "--json"]
        self.common += ["--cpu", "avx2"] if arguments.isa == "avx2" else []

    def run(self):
        a = self.arguments
        bench = [a.kvad, "bench", self.folder, "--kv", "f32,f16", "--cache", "paged", *self.common]
        bench += ["--contexts", a.contexts, "--prefill", a.prefill, "--batch", a.batch, "--repeat", 5]
        text = output_of(bench, a)
        if text is None:
            return []
        return report.of_kvad(json.loads(text), self.tokens())

    def ids(self, n):
        n_vocab = json.loads((self.folder / "config.json").read_text())["vocab_size"]
        return ",".join(map(str, timing.prompt(n, n_vocab)))

    def tokens(self):
        command = [self.arguments.kvad, "generate", self.folder, "--ids", self.ids(CHECKED_PROMPT), *self.common]
        command += ["-n", timing.N_CHECKED, "--temperature", 0]
        text = output_of(command, self.arguments)
        return json.loads(text)["ids"] if text else None

    def write_logits(self, folder):
        """Files of logits with the cache and the ways to read a prompt that they are of."""
        written = []
        for kv in ("f32", "f16"):
            path = folder / f"kvad-{kv}.npy"
            score = [self.arguments.kvad, "score", self.folder, "--ids", self.ids(timing.N_SCORED), *self.common]
            if output_of([*score, "--kv", kv, "--logits", path], self.arguments) is not None:
                written.append((path, kv, ["any way"]))
        return written


class Worker:
    """A script that measures one engine in one mode."""

    def __init__(self, arguments, python, script, model, mode, name, weights, cache):
        self.name, self.weights, self.cache = name, weights, cache
        self.arguments, self.mode = arguments, mode
        self.command = [python, HERE / script, "--model", model, "--mode", mode, "--threads", arguments.threads]

    def run(self):
        a = self.arguments
        sizes = ["--contexts", a.contexts, "--prefill", a.prefill, "--batch", a.batch, "--seconds", a.seconds]
        text = output_of([*self.command, *sizes], a)
        return [report.of_worker(self.name, self.weights, self.cache, json.loads(text))] if text else []

    def write_logits(self, folder):
        path = folder / f"llama-{self.mode}.npy"
        if output_of([*self.command, "--logits", path], self.arguments) is None:
            return []
        return [(path, self.cache, ["prompt at once", "token by token"])]


def engines(arguments, python, llama_python, folder):
    every = []
    for weights in arguments.weights.split(","):
        every.append(Kvad(arguments, folder, weights))
        file = folder / f"{TYPES[weights]}.gguf"
        for mode, name in (("fa", "llama.cpp, flash attention"), ("no-fa", "llama.cpp")):
            every.append(Worker(arguments, llama_python, "worker_llama.py", file, mode, name, weights, "f16"))
        if weights != "f32":
            continue
        for mode, name in (("naive", "nanoGPT, no cache"), ("cat", "nanoGPT, torch.cat"), ("hf", "HF transformers")):
            every.append(Worker(arguments, python, "worker_torch.py", folder, mode, name, weights, "f32"))
    only, skip = tuple(arguments.only), tuple(arguments.skip)
    return [e for e in every if e.name.startswith(only) and not (skip and e.name.startswith(skip))]


def run_rounds(arguments, every, first):
    """Rows of all engines, numbered from round `first` on."""
    rows = []
    for n in range(first, first + arguments.rounds):
        for i, engine in enumerate(every if n % 2 else every[::-1]):
            where = f"round {n} of {first + arguments.rounds - 1}, {i + 1}/{len(every)}"
            print(f"{where}: {engine.name} {engine.weights}", file=sys.stderr)
            rows += [{**row, "round": n} for row in engine.run()]
    return rows


def run_errors(arguments, every, python, folder):
    """Rows of how far each engine's logits are from float64."""
    rows = []
    for weights in arguments.weights.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            written = []
            for engine in every:
                if engine.weights == weights and engine.name.startswith(("kvad", "llama.cpp")):
                    print(f"errors: {engine.name} {weights}", file=sys.stderr)
                    written += [(engine.name, *file) for file in engine.write_logits(pathlib.Path(scratch))]
            files = [path for _, path, _, _ in written]
            text = output_of([python, HERE / "errors.py", folder, TYPES[weights], *files], arguments)
        for (name, _, cache, ways), found in zip(written, json.loads(text) if text else [], strict=False):
            rows += [
                {"engine": name, "weights": weights, "cache": cache, "way": way, "errors": errors}
                for way, errors in zip(ways, found, strict=True)
            ]
    return rows


def about_kvad(arguments):
    """Machine, level and version, of a run that costs nothing: for results without one of kvad."""
    bench = [arguments.kvad, "bench", "--synthetic", "tiny", "--quick", "--repeat", 1, "--cache", "paged", "--json"]
    bench += ["--cpu", "avx2"] if arguments.isa == "avx2" else []
    text = output_of([*bench, "--contexts", 16, "--prefill", "", "--batch", ""], arguments)
    return report.head_of_kvad(json.loads(text)) if text else {}


def write_results(arguments, result):
    result["date"] = datetime.date.today().isoformat()
    cpu = re.sub(r"[^a-z0-9]+", "-", result["machine"].get("cpu", "unknown").lower()).strip("-")
    name = f"{result['date']}-{cpu}-{arguments.size}-{arguments.threads}-threads"
    name += "" if arguments.isa == "native" else f"-{arguments.isa}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    text = report.markdown(result)
    (arguments.out / f"{name}.md").write_text(text)
    print(text)


def main():
    arguments = parse()
    if not arguments.kvad.is_file():
        sys.exit(f"{arguments.kvad} is not built: run `make` first, or say --kvad PATH")
    WORK.mkdir(parents=True, exist_ok=True)
    python, llama_python, versions = install(arguments.isa)
    folder = WORK / "models" / arguments.size
    types = [TYPES[weights] for weights in arguments.weights.split(",")]
    subprocess.run([python, HERE / "make_model.py", folder, arguments.size, *types], check=True)
    every = engines(arguments, python, llama_python, folder)
    rows = []
    if arguments.rows and arguments.rows.exists():
        rows = [json.loads(line) for line in arguments.rows.read_text().splitlines()]
    past = [row["round"] for row in rows if "round" in row and row["weights"] in arguments.weights.split(",")]
    new = run_rounds(arguments, every, max(past, default=0) + 1)
    if arguments.errors:
        new += run_errors(arguments, every, python, folder)
    if arguments.rows:
        with arguments.rows.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in new)
    if not rows + new:
        print("Nothing was measured, so nothing is written.", file=sys.stderr)
        sys.exit(1 if arguments.rounds or arguments.errors else 0)
    peers = {name: versions.get(name) for name in ("torch", "transformers", "llama_cpp_python")}
    write_results(arguments, report.summary(rows + new, arguments, peers, about_kvad(arguments)))


if __name__ == "__main__":
    main()
