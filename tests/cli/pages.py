"""The pages (README.md, docs/ and the others) as tests read them, and whether they tell the fields of JSON."""

import functools
import re

from conftest import ROOT

# What the pages describe once and others refer to.
MACHINE = {"cpu", "cpus", "cores", "virtual", "caches", "level", "kind", "bytes", "memory_bytes", "huge_pages"}
MODEL = {"name", "family", "n_parameters", "n_layers", "n_heads", "d_model", "d_ff", "n_vocab", "n_ctx"}


@functools.cache
def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


@functools.cache
def code_of(page):
    """Pieces of code of a page: spans between backticks, and lines of indented or fenced blocks."""
    spans, fenced = [], False
    for line in text_of(page).splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            spans.append(line)
        else:
            spans += re.findall(r"`([^`]+)`", line)
    return spans


def section(page, head):
    """Of a page, from a heading to the next one."""
    return re.split(r"^#+ ", text_of(page).split(f"\n{head}\n", 1)[1], maxsplit=1, flags=re.M)[0]


def row_of_cli(command):
    """Of the table in docs/cli.md: what a command's JSON has."""
    return re.search(rf"^\| `{command}` \| (.*) \|$", text_of("docs/cli.md"), re.M).group(1)


def fields(value):
    """Names of all members, at any depth."""
    if isinstance(value, list):
        return set().union(*map(fields, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    return set(value).union(*map(fields, value.values()))


def check_fields(told, written, but=frozenset()):
    """Every field that is written is told, and what is told with an underscore in it is written."""
    words = set(re.findall(r"[a-z_0-9]+", told))
    assert fields(written) <= words | but, fields(written) - words - but
    names = {word for word in words if re.fullmatch(r"[a-z]\w*_\w*[a-z0-9]", word)}
    assert names <= fields(written) | but, names - fields(written) - but
