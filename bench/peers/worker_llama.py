"""Times llama.cpp through the C interface of llama-cpp-python: a step and a greedy token from its logits.

usage: worker_llama.py --model FILE.gguf --mode fa|no-fa --threads N --contexts LIST ...
       worker_llama.py --model FILE.gguf --mode fa|no-fa --threads N --logits FILE.npy
            [2][N_SCORED][vocabulary]: of a prompt read at once, and token by token, which go through other kernels"""

import ctypes

import llama_cpp as lib
import numpy
import timing


def first_of(*names):
    """The function of the first name that this version has: names changed over the years."""
    for name in names:
        if hasattr(lib, name):
            return getattr(lib, name)
    raise RuntimeError(f"this version of llama-cpp-python has none of {', '.join(names)}")


class Engine:
    def __init__(self, model, n_threads, flash, n_ctx, n_sequences=1):
        parameters = lib.llama_context_default_params()
        parameters.n_ctx = n_ctx * n_sequences
        parameters.n_batch = parameters.n_ubatch = 512
        parameters.n_seq_max = n_sequences
        parameters.n_threads = parameters.n_threads_batch = n_threads
        if hasattr(parameters, "flash_attn_type"):
            parameters.flash_attn_type = 1 if flash else 0
        else:
            parameters.flash_attn = flash
        self.model = model
        self.context = first_of("llama_init_from_model", "llama_new_context_with_model")(model, parameters)
        if not self.context:
            raise RuntimeError("llama.cpp: no context")
        self.n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        self.batch = lib.llama_batch_init(512, 0, n_sequences)

    def put(self, rows):
        """rows: (id, position, sequence, wants logits)"""
        for start in range(0, len(rows), 512):
            part = rows[start : start + 512]
            self.batch.n_tokens = len(part)
            for i, (token, position, sequence, wants) in enumerate(part):
                self.batch.token[i], self.batch.pos[i] = token, position
                self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
                self.batch.logits[i] = wants
            if lib.llama_decode(self.context, self.batch) != 0:
                raise RuntimeError("llama_decode failed")
        return len(part)

    def greedy(self, n_rows, wants):
        """Token of each of the last step's rows that wanted logits."""
        return [int(self.logits(i).argmax()) for i in range(n_rows) if wants[i]]

    def logits(self, i):
        return numpy.ctypeslib.as_array(lib.llama_get_logits_ith(self.context, i), (self.n_vocab,))

    def step(self, rows):
        last = rows[-(len(rows) % 512 or 512) :]
        self.put(rows)
        return self.greedy(len(last), [row[3] for row in last])

    def truncate(self, n_sequences, length):
        """Forget everything from `length` on."""
        if hasattr(lib, "llama_get_memory"):
            memory = lib.llama_get_memory(self.context)
            for sequence in range(n_sequences):
                lib.llama_memory_seq_rm(memory, sequence, length, -1)
        else:
            remove = first_of("llama_kv_self_seq_rm", "llama_kv_cache_seq_rm")
            for sequence in range(n_sequences):
                remove(self.context, sequence, length, -1)

    def close(self):
        lib.llama_batch_free(self.batch)
        lib.llama_free(self.context)


def rows_of(n_vocab, sequence, first, last):
    """Rows [first, last) of a prompt; the last one wants logits."""
    ids = timing.prompt(last, n_vocab, sequence)
    return [(ids[i], i, sequence, i == last - 1) for i in range(first, last)]


def measure(engine, context, n_new, n_sequences, seconds):
    for sequence in range(n_sequences):
        if context:
            engine.put(rows_of(engine.n_vocab, sequence, 0, context))
    rows = [row for s in range(n_sequences) for row in rows_of(engine.n_vocab, s, context, context + n_new)]
    taken = timing.milliseconds(lambda: engine.step(rows), lambda: engine.truncate(n_sequences, context), seconds)
    engine.truncate(n_sequences, 0)
    return taken


def first_tokens(engine, n):
    ids = timing.prompt(16, engine.n_vocab)
    rows, out = [(token, i, 0, i == 15) for i, token in enumerate(ids)], []
    for i in range(n):
        out += engine.step(rows)
        rows = [(out[-1], 16 + i, 0, True)]
    engine.truncate(1, 0)
    return out


def write_logits(engine, path):
    n = timing.N_SCORED
    rows = [(token, i, 0, True) for i, token in enumerate(timing.prompt(n, engine.n_vocab))]
    out = numpy.empty((2, n, engine.n_vocab), numpy.float32)
    engine.put(rows)
    for i in range(n):
        out[0, i] = engine.logits(i)
    engine.truncate(1, 0)
    for i, row in enumerate(rows):
        engine.put([row])
        out[1, i] = engine.logits(0)
    numpy.save(path, out)


def main():
    arguments = timing.parse()
    flash, threads = arguments.mode == "fa", arguments.threads
    silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    lib.llama_backend_init()
    model = first_of("llama_model_load_from_file", "llama_load_model_from_file")(
        arguments.model.encode(), lib.llama_model_default_params()
    )
    if not model:
        raise RuntimeError(f"llama.cpp cannot load {arguments.model}")
    engine = Engine(model, threads, flash, 1024)
    if arguments.logits:
        write_logits(engine, arguments.logits)
        return
    tokens = first_tokens(engine, timing.N_CHECKED)
    decode = {c: measure(engine, c, 1, 1, arguments.seconds) for c in arguments.contexts}
    prefill = {n: measure(engine, 0, n, 1, arguments.seconds) for n in arguments.prefill}
    engine.close()
    batch = {}
    for n in arguments.batch:
        engine = Engine(model, threads, flash, 64, n)
        batch[n] = measure(engine, 16, 1, n, arguments.seconds)
        engine.close()
    versions = {"llama-cpp-python": lib.__version__}
    instructions = lib.llama_print_system_info().decode().removeprefix("CPU : ").strip(" |")
    timing.answer(
        versions=versions, instructions=instructions, tokens=tokens, decode=decode, prefill=prefill, batch=batch
    )


if __name__ == "__main__":
    main()
