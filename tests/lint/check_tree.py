#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the tree that a compiler does not: check_tree.py ROOT. One line per finding, exit 1.

  layers    a file includes its own component and lower ones only; no torch on the lower floor; public headers
            never include torch (but the two named ones), other dependencies or heavy standard headers
  quiet     the library neither prints, exits, aborts nor installs signal handlers
  shape     sizes (header 400 lines, source 600), SPDX line, include guard, ASCII names, macro prefix
  mirror    every public header has a test of its name
"""
import pathlib
import re
import sys

LOWER = ["base", "topology", "device", "memory", "observe", "comm", "data", "launch"]
UPPER = ["tensor", "optim", "activation", "parallel", "checkpoint", "runtime"]
COMPONENTS = LOWER + UPPER
# The only public headers that may include torch; each says its price in its first comment.
TORCH_HEADERS = {"include/ait/tensor/torch.h", "include/ait/parallel/module.h"}
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
# Dependencies and standard headers too heavy for a public header.
BANNED_IN_PUBLIC = re.compile(
    r"^(Eigen/|cxxopts|nccl\.h|numa|cuda|gloo/|nlohmann/|zlib\.h|iostream$|fstream$|sstream$|filesystem$|regex$"
    r"|absl/(?!status/))")
LOUD = re.compile(r"(?<![\w.>:])(?:std::)?(abort|exit|_exit|_Exit|quick_exit|terminate|printf|fprintf|puts|perror)\s*\("
                  r"|std::(cout|cerr|clog)\b|(?<![\w.>:])(?:std::)?(signal|sigaction)\s*\(")
HEADER_LINES, SOURCE_LINES = 400, 600


def without_comments(text):
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)  # what a string says is not code
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)


def component_of(path):
    parts = path.split("/")
    if path.startswith("include/ait/") and len(parts) > 3:
        return parts[2]
    if path.startswith("src/") and len(parts) > 2:
        return parts[1]
    return None


def check_layers(path, text):
    component = component_of(path)
    public = path.startswith("include/")
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not match:
            continue
        name = match.group(2)
        own = re.match(r"(?:ait/)?([a-z_]+)/", name)
        other = own.group(1) if own and (name.startswith("ait/") or match.group(1) == '"') else None
        if component in COMPONENTS and other in COMPONENTS:
            if COMPONENTS.index(other) > COMPONENTS.index(component):
                yield number, f"{component} includes {name}: {other} lies above it"
        if TORCH.match(name):
            if component in LOWER:
                yield number, f"{component} is on the lower floor and includes {name}"
            elif public and path not in TORCH_HEADERS:
                yield number, f"a public header includes {name}; forward-declare at::Tensor"
        elif public and BANNED_IN_PUBLIC.match(name):
            yield number, f"a public header includes {name}"


def check_quiet(path, text):
    if component_of(path) not in COMPONENTS:
        return
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        match = LOUD.search(line)
        if match and not line.rstrip().endswith(("override {", "override;")):  # c10d names a member abort
            yield number, f"the library calls {match.group().strip('( ')}"


def check_shape(path, text):
    lines = text.count("\n")
    header = path.endswith(".h")
    if lines > (HEADER_LINES if header else SOURCE_LINES):
        yield lines, f"{lines} lines, allowed {HEADER_LINES if header else SOURCE_LINES}"
    if "SPDX-License-Identifier: Apache-2.0" not in text.split("\n", 1)[0]:
        yield 1, "the first line is not the SPDX line"
    if re.search(r"using namespace (?!std::chrono_literals|std::string_view_literals|std::literals)", without_comments(text)):
        yield 1, "using namespace"
    if not header:
        return
    if path.startswith(("include/", "src/", "tests/")):
        rest = re.sub(r"^(include/ait|include|src)/", "", path)
        guard = "AIT_" + re.sub(r"[^A-Za-z0-9]", "_", rest).upper() + "_"
        if f"#ifndef {guard}\n#define {guard}\n" not in text:
            yield 1, f"the include guard is not {guard}"
    if path.startswith("include/"):
        for match in re.finditer(r"^\s*#\s*define\s+(\w+)", text, re.M):
            if not match.group(1).startswith("AIT_"):
                yield text.count("\n", 0, match.start()) + 1, f"macro {match.group(1)} lacks the prefix AIT_"
        if re.search(r"^\s*#\s*if(def|ndef)?\s+(?!AIT_[A-Z0-9_]*_H_)", text, re.M):
            yield 1, "#if in a public header; choose a source file by CMake instead"


def check_mirror(root):
    for header in sorted((root / "include/ait").rglob("*.h")):
        folder, stem = header.parent.relative_to(root / "include/ait").as_posix(), header.stem
        if header.name == "version.h":  # three numbers
            continue
        if not list((root / "tests" / folder).glob(f"{stem}*_test.cc")):
            yield f"include/ait/{folder}/{header.name}:1: no tests/{folder}/{stem}_test.cc"


def findings(root):
    for folder in ("include", "src", "tests", "benchmarks", "examples"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cc", ".cu"):
                continue
            path = file.relative_to(root).as_posix()
            if not re.fullmatch(r"[a-z0-9_/.\-]+", path):
                yield f"{path}:1: the name is not in snake_case"
            text = file.read_text(encoding="utf-8")
            for check in (check_layers, check_quiet, check_shape):
                for number, message in check(path, text):
                    yield f"{path}:{number}: {message}"
    yield from check_mirror(root)


def main():
    root = pathlib.Path(sys.argv[1])
    if not (root / "include/ait").is_dir():
        sys.exit(f"{root} has no include/ait")
    found = list(findings(root))
    for line in found:
        print(line)
    print(f"{len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
