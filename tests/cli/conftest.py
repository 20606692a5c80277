"""What the tests of the command line share: the program (KVAD_BIN names it), models, and readers for what it writes."""

import json
import os
import pathlib
import signal
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = pathlib.Path(os.environ.get("KVAD_FIXTURES", ROOT / "../shared/fixtures"))


def environment(**extra):
    """The caller's environment without KVAD_ variables, which would change what is tested."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("KVAD_")}
    return {**kept, **extra}


def default_signals():
    """In the child: signals as a shell gives them to the foreground, even if nohup or & has started these tests."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Running(subprocess.Popen):
    """A process that does not outlive a test that fails."""

    def __exit__(self, kind, *rest):
        if kind:
            self.kill()
        super().__exit__(kind, *rest)


class Program:
    def __init__(self, path):
        self.path = path

    def __call__(self, *arguments, stdin=b"", env=None, **options):
        """Runs to the end; standard input is empty unless given."""
        return subprocess.run(
            [self.path, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            env=environment(**(env or {})),
            timeout=120,
            check=False,
            **options,
        )

    def text(self, *arguments, **options):
        """Standard output of a run that must succeed."""
        result = self(*arguments, **options)
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout.decode()

    def json(self, *arguments, **options):
        return json.loads(self.text(*arguments, "--json", **options))

    def start(self, *arguments, env=None, **options):
        """A running process with pipes."""
        for stream in ("stdin", "stdout", "stderr"):
            options.setdefault(stream, subprocess.PIPE)
        options.setdefault("preexec_fn", default_signals)
        return Running([self.path, *map(str, arguments)], env=environment(**(env or {})), **options)


@pytest.fixture(scope="session")
def kvad():
    name = os.environ.get("KVAD_BIN") or os.environ.get("KVAD") or ROOT / "build/release/cli/kvad"
    path = pathlib.Path(name).resolve()
    if not path.is_file():
        pytest.skip(f"{path} is not built")
    return Program(str(path))


def find(*candidates):
    for path in candidates:
        if path.exists():
            return path
    pytest.skip(f"none of {', '.join(map(str, candidates))} is there")
    return None


@pytest.fixture(scope="session")
def shakespeare():
    """The trained character model: context 1024, 65 characters."""
    return find(ROOT / "models/shakespeare-char", FIXTURES / "shakespeare-char")


def tiny(name):
    return find(ROOT / "tests/data/models" / name, FIXTURES / "tiny" / name)


@pytest.fixture(scope="session")
def nano():
    """A random nanoGPT model: context 37, 65 characters, one of them two bytes long."""
    return tiny("nanogpt/bias")


@pytest.fixture(scope="session")
def padded():
    """A random nanoGPT model: 65 characters, 128 rows of logits."""
    return tiny("nanogpt/compiled-padded")


@pytest.fixture(scope="session")
def bare():
    """A random Hugging Face model without a tokenizer: context 17, 33 ids, end of text 0."""
    return tiny("hf-gpt2/tanh")


@pytest.fixture(scope="session")
def headless():
    """A hand-written model whose file does not say how many heads it has."""
    return tiny("hand-written/mingpt")


@pytest.fixture(scope="session")
def bytes_model(tmp_path_factory):
    """(model, tokenizer): 307 ids, of which the first 256 are the 256 bytes, so that anything may come out."""
    model = tiny("hf-gpt2/wide-two-chunks")
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in printable}
    letters.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in letters)})
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "vocab.json").write_text(json.dumps({letters[b]: b for b in range(256)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return model, folder


DTYPES = {"F32": "f", "F64": "d", "I32": "i", "I64": "q"}


def read_safetensors(path):
    """{name: (shape, numbers in row-major order)}"""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        code = DTYPES[entry["dtype"]]
        count = (last - first) // struct.calcsize(code)
        tensors[name] = (entry["shape"], struct.unpack_from(f"<{count}{code}", data, 8 + size + first))
    return tensors


def read_npy(path):
    """(shape, numbers) of a float32 .npy file of version 1.0; every rule of the format is checked."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    (size,) = struct.unpack_from("<H", data, 8)
    assert (10 + size) % 64 == 0 and data[9 + size : 10 + size] == b"\n"
    header = eval(data[10 : 10 + size].decode("latin1"), {"__builtins__": {}})  # a Python literal by definition
    assert header["descr"] == "<f4" and header["fortran_order"] is False
    body = data[10 + size :]
    count = 1
    for n in header["shape"]:
        count *= n
    assert len(body) == 4 * count
    return list(header["shape"]), struct.unpack(f"<{count}f", body)
