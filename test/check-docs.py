#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fail when documents and tree differ: check-docs.py SOURCE_DIR

Documents name, in back-quotes, no file and no identifier that is not in the tree (HACKING is about little else, and has
no quotes). gpucoll(7) lists every reason for which a call is staged.
"""
import re
import sys
from pathlib import Path

CODE = ["src/**/*", "include/**/*", "test/**/*", "tools/**/*", "bench/**/*", "man/*", "*.am", "*.ac", "*.mk", "*.sh"]
DOCUMENTS = ["*.md", "HACKING", "NEWS", "docs/**/*.md"]
IDENTIFIER = re.compile(r"\b[a-z]+_[a-z_0-9]+\b")
FILE = re.compile(r"[\w/.-]+\.(?:c|h|cu|py|pml|sh|mk|txt)\b")
ELSEWHERE = {"app.c", "mpi.h", "wrappers.c"}  # the reader's, the MPI's, made by the build
FIGURES = "bench/results/"  # of the repository; a release has none


def files(root, patterns):
    return [path for pattern in patterns for path in sorted(root.glob(pattern)) if path.is_file()]


def reasons(root):
    """The texts of core_reason.c's table, each a string, or several that follow each other."""
    table = (root / "src/core/call/core_reason.c").read_text()
    return ["".join(re.findall(r'"([^"]*)"', texts)) for texts in re.findall(r'\] =\s*((?:"[^"]*"\s*)+),', table)]


def unlisted(root):
    manual = root / "man/gpucoll.7"
    if not manual.exists():  # of a bundle
        return []
    listed = re.sub(r"\\f.|\.B |\.BR |\"", "", manual.read_text()).replace("\n", " ")
    return [f"man/gpucoll.7 does not say what it is that a call is staged for: {reason}"
            for reason in reasons(root) if reason not in listed]


def main():
    root = Path(sys.argv[1])
    code = files(root, CODE)
    words = set()
    for path in code:
        words |= set(re.findall(r"\w+", path.read_text(errors="replace")))
    places = [f"/{path.relative_to(root)}" for path in code] + [f"/{path.name}" for path in files(root, DOCUMENTS)]
    found = []
    for document in files(root, DOCUMENTS):
        for number, line in enumerate(document.read_text().splitlines(), 1):
            for quoted in [line] if document.name == "HACKING" else re.findall(r"`([^`]+)`", line):
                stale = [word for word in IDENTIFIER.findall(quoted) if word not in words]
                stale += [name for name in FILE.findall(quoted)
                          if name not in ELSEWHERE and not (name.startswith(FIGURES) and not (root / FIGURES).exists())
                          and not any(place.endswith(f"/{name.removeprefix('./')}") for place in places)]
                found += [f"{document.relative_to(root)}:{number}: there is no {name}" for name in stale]
    found += unlisted(root)
    print("\n".join(found) if found else "what the documents name is there")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
