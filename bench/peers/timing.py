"""What the workers share: the request, prompts, repeating a step, the answer."""

import argparse
import json
import time

N_CHECKED = 8  # greedy tokens that all engines with the same weights must agree on
N_SCORED = 256  # tokens whose logits are compared with float64


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--contexts", type=numbers, default=[])
    parser.add_argument("--prefill", type=numbers, default=[])
    parser.add_argument("--batch", type=numbers, default=[])
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a sample lasts at least")
    parser.add_argument("--logits", help="time nothing; write the logits of N_SCORED tokens to this file")
    return parser.parse_args()


def numbers(text):
    return [int(number) for number in text.split(",") if number]


def prompt(n, n_vocab, sequence=0):
    """Ids that look random; sequence 0 of any length begins like any other."""
    return [(7919 * (i + 1) + 104729 * sequence + i * i) % n_vocab for i in range(n)]


def milliseconds(step, undo, seconds):
    """Times of a step, each undone outside the clock: two to warm up, then as many as fit `seconds`, at least three."""
    taken = []
    while len(taken) < 5 or sum(taken) < seconds + sum(taken[:2]):
        start = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start)
        undo()
        if len(taken) >= 5 and len(taken) > 1000:
            break
    return [1e3 * t for t in taken[2:]]


def answer(**fields):
    print(json.dumps(fields))
