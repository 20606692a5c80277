"""What the check scripts share: the files of the repository, C without comments, and their last line."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Folders whose files are data made by programs or by other people: no rule about layout holds for them.
DATA_FOLDERS = ("models/", "tests/data/", "tests/fuzz/corpus/", "bench/results/")


def repository_files():
    """Paths of all files that are or will be part of the repository, relative to ROOT."""
    if not os.path.isdir(os.path.join(ROOT, ".git")) and not os.path.isfile(os.path.join(ROOT, ".git")):
        found = []
        for folder, folders, files in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in ("build", "__pycache__", ".pytest_cache", ".hypothesis")]
            found += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
        return sorted(found)
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    return sorted({f for f in listed if f and os.path.isfile(os.path.join(ROOT, f))})


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def is_data(path):
    return path.startswith(DATA_FOLDERS)


_C_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def without_comments(text, keep_strings=True):
    """C text with comments (and, if asked, the insides of strings) replaced by spaces; lines stay where they are."""

    def blank(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token if keep_strings else token[0] + " " * (len(token) - 2) + token[-1]
        return re.sub(r"[^\n]", " ", token)

    return _C_TOKEN.sub(blank, text)


def finish(n_checked, problems, skipped=()):
    """Print the problems and the line that scripts/check counts; return the exit status. Of n_checked things each
    problem fails one, and `skipped` (lines with a reason) did not run."""
    for line in [*problems, *(f"SKIPPED: {reason}" for reason in skipped)]:
        print(line)
    n_passed = max(0, n_checked - len(problems) - len(skipped))
    print(f"{n_passed} passed, {len(problems)} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if problems else 0


def main(function):
    sys.exit(function(sys.argv[1:]))
