#!/usr/bin/env python3
"""Runs kvad and other engines in turn on the same random weights and the same threads, and writes a table of ratios.

usage: bench/peers/run.py [--threads N] [--rounds N] [--size gpt2] [--only NAME,...] [--kvad PATH] [--out FOLDER]
                          [--rows FILE]

It installs the engines from PyPI into build/peers/venv (some gigabytes; llama.cpp is compiled), writes the weights
there once, and takes half an hour for GPT-2 124M. Nothing else should run meanwhile. Each round runs every engine once,
so that a slow minute hits all alike; what counts is the median over the rounds. With --rows the run may be had in
pieces (a round, a type of weights): each adds to FILE, and the tables are made of all that it holds."""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "peers"
TYPES = {"f32": "f32", "bf16": "bf16", "q8": "q8_0", "q4": "q4_0"}  # kvad's names and GGUF's
CHECKED_PROMPT = 16


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", default="gpt2", help="gpt2, gpt2-medium, or tiny to try the script out")
    parser.add_argument("--contexts", default="16,512,900,1000")
    parser.add_argument("--prefill", default="512")
    parser.add_argument("--batch", default="16")
    parser.add_argument("--weights", default=",".join(TYPES))
    parser.add_argument("--only", default="", help="engines whose names begin so: kvad, llama.cpp, nanoGPT, HF")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long one sample lasts at least")
    parser.add_argument("--rows", type=pathlib.Path, help="add what was measured to this file of JSON lines")
    parser.add_argument("--kvad", default=ROOT / "build/release/cli/kvad", type=pathlib.Path)
    parser.add_argument("--out", default=HERE.parent / "results", type=pathlib.Path)
    return parser.parse_args()


def install():
    """A virtual environment with what requirements.txt names; its Python."""
    python = WORK / "venv/bin/python"
    wanted, stamp = (HERE / "requirements.txt").read_text(), WORK / "installed.txt"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print("Installing into build/peers/venv (this compiles llama.cpp) ...", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", WORK / "venv"], check=True)
    # Images are of no use here and take half of the time to compile.
    environment = {**os.environ, "CMAKE_ARGS": "-DLLAVA_BUILD=OFF"}
    install_all = [python, "-m", "pip", "install", "-q", "-r", HERE / "requirements.txt"]
    subprocess.run(install_all, check=True, env=environment)
    stamp.write_text(wanted)
    return python


def output_of(command, threads):
    """Standard output of a command that sees nothing of the caller's thread settings; None after a failure, whose
    reason has been printed."""
    ours = ("KVAD_", "OMP_", "MKL_", "OPENBLAS_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environment["OMP_NUM_THREADS"] = str(threads)
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

    def run(self):
        a = self.arguments
        common = ["--threads", a.threads, "--json"]
        bench = [a.kvad, "bench", self.folder, "--weights", self.weights, "--kv", "f32,f16", "--cache", "paged"]
        bench += ["--contexts", a.contexts, "--prefill", a.prefill, "--batch", a.batch, "--repeat", 5, *common]
        text = output_of(bench, a.threads)
        if text is None:
            return []
        return report.of_kvad(json.loads(text), self.tokens())

    def tokens(self):
        import timing

        n_vocab = json.loads((self.folder / "config.json").read_text())["vocab_size"]
        ids = ",".join(map(str, timing.prompt(CHECKED_PROMPT, n_vocab)))
        command = [self.arguments.kvad, "generate", self.folder, "--weights", self.weights, "--ids", ids, "--json"]
        command += ["-n", timing.N_CHECKED, "--temperature", 0, "--threads", self.arguments.threads]
        text = output_of(command, self.arguments.threads)
        return json.loads(text)["ids"] if text else None


class Worker:
    """A script that measures one engine in one mode."""

    def __init__(self, arguments, python, script, model, mode, name, weights, cache):
        self.name, self.weights, self.cache = name, weights, cache
        self.threads = arguments.threads
        self.command = [python, HERE / script, "--model", model, "--mode", mode, "--threads", arguments.threads]
        self.command += ["--contexts", arguments.contexts, "--prefill", arguments.prefill, "--batch", arguments.batch]
        self.command += ["--seconds", arguments.seconds]

    def run(self):
        text = output_of(self.command, self.threads)
        return [report.of_worker(self.name, self.weights, self.cache, json.loads(text))] if text else []


def engines(arguments, python, folder):
    every = []
    for weights in arguments.weights.split(","):
        every.append(Kvad(arguments, folder, weights))
        file = folder / f"{TYPES[weights]}.gguf"
        for mode, name in (("fa", "llama.cpp, flash attention"), ("no-fa", "llama.cpp")):
            every.append(Worker(arguments, python, "worker_llama.py", file, mode, name, weights, "f16"))
        if weights != "f32":
            continue
        for mode, name in (("naive", "nanoGPT, no cache"), ("cat", "nanoGPT, torch.cat"), ("hf", "HF transformers")):
            every.append(Worker(arguments, python, "worker_torch.py", folder, mode, name, weights, "f32"))
    names = tuple(arguments.only.split(","))
    return [engine for engine in every if engine.name.startswith(names)]


def main():
    arguments = parse()
    if not arguments.kvad.is_file():
        sys.exit(f"{arguments.kvad} is not built: run `make` first, or say --kvad PATH")
    WORK.mkdir(parents=True, exist_ok=True)
    python = install()
    folder = WORK / "models" / arguments.size
    types = [TYPES[weights] for weights in arguments.weights.split(",")]
    subprocess.run([python, HERE / "make_model.py", folder, arguments.size, *types], check=True)
    every = engines(arguments, python, folder)
    rounds = []
    for n in range(arguments.rounds):
        for i, engine in enumerate(every):
            print(f"round {n + 1}/{arguments.rounds}, {i + 1}/{len(every)}: {engine.name} {engine.weights}",
                  file=sys.stderr)  # fmt: skip
            rounds += engine.run()
    if arguments.rows:
        with arguments.rows.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rounds)
        rounds = [json.loads(line) for line in arguments.rows.read_text().splitlines()]
    versions = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, check=True).stdout
    versions = {package["name"]: package["version"] for package in json.loads(versions)}
    peers = {name: versions.get(name) for name in ("torch", "transformers", "llama_cpp_python")}
    result = report.summary(rounds, arguments, peers)
    result["date"] = datetime.date.today().isoformat()
    cpu = re.sub(r"[^a-z0-9]+", "-", result["machine"].get("cpu", "unknown").lower()).strip("-")
    name = f"{result['date']}-{cpu}-{arguments.size}-{arguments.threads}-threads"
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    text = report.markdown(result)
    (arguments.out / f"{name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
