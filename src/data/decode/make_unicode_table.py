#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_table.cc: the classes of characters that pre-tokenizers tell apart, and composition (NFC).

The classes are those of the regular expressions of tiktoken (asked character by character), composition is that of
Python's unicodedata. Needs tiktoken; written with tiktoken 0.14.0 and Python 3.11 (Unicode 14).
"""
import pathlib
import sys
import unicodedata

import tiktoken

EVERY = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# Numbers as in unicode_internal.h.
CLASSES = [(1, r"\p{Lu}|\p{Lt}"), (2, r"\p{Ll}"), (3, r"\p{Lm}|\p{Lo}"), (4, r"\p{M}"), (5, r"\p{N}"), (6, r"\s")]


def members(pattern):
    ranks = {bytes([i]): i for i in range(256)}
    encoding = tiktoken.Encoding("class", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    found = set()
    for begin in range(0, len(EVERY), 65536):
        text = "".join(EVERY[begin:begin + 65536])
        found.update(encoding.decode(encoding.encode_ordinary(text)))
    return found


def class_ranges():
    of = {}
    for number, pattern in CLASSES:
        of.update(dict.fromkeys(members(pattern), number))
    ranges, last = [], 0
    for c in range(0x110000):
        number = of.get(chr(c), 0)
        if number != last:
            ranges.append((c, number))
            last = number
    return ranges


def compositions():
    """(first, second, composed) of every pair that NFC joins."""
    pairs = []
    for c in EVERY:
        parts = unicodedata.decomposition(c).split()
        if len(parts) == 2 and not parts[0].startswith("<") and unicodedata.normalize("NFC", c) == c:
            pairs.append((int(parts[0], 16), int(parts[1], 16), ord(c)))
    return sorted(pairs)


def decompositions():
    """(character, one or two parts) of every character that composition does not make: NFC takes these apart."""
    rest = []
    for c in EVERY:
        parts = unicodedata.decomposition(c).split()
        if parts and not parts[0].startswith("<") and unicodedata.normalize("NFC", c) != c:
            rest.append((ord(c), int(parts[0], 16), int(parts[1], 16) if len(parts) == 2 else 0))
    return sorted(rest)


def combining():
    """(begin, class) of runs of one canonical combining class."""
    runs, last = [], 0
    for c in range(0x110000):
        number = 0 if 0xD800 <= c < 0xE000 else unicodedata.combining(chr(c))
        if number != last:
            runs.append((c, number))
            last = number
    return runs


def table(name, comment, numbers):
    lines, line = [], " "
    for number in numbers:
        text = f" {number:#x}," if number > 9 else f" {number},"
        if len(line) + len(text) > 100:
            lines.append(line)
            line = "   "
        line += text if line.strip() else "   " + text
    lines.append(line)
    body = "\n".join("    " + l.strip() for l in lines)
    return (f"// {comment}\nconstexpr std::uint32_t k{name}[] = {{\n{body}\n}};\n", name)


def main():
    joined = [n for pair in compositions() for n in pair]
    tables = [
        table("Classes", "Begins of runs, each with its class: begin * 8 + class.",
              [c << 3 | n for c, n in class_ranges()]),
        table("Combining", "Begins of runs of a combining class: begin * 256 + class.",
              [c << 8 | n for c, n in combining()]),
    ]
    write("unicode_classes.cc", tables)
    tables = [
        table("Compositions", "First, second and what they make; ascending.", joined),
        table("Decompositions", "What NFC takes apart: the character and two parts, or one and 0; ascending.",
              [n for entry in decompositions() for n in entry]),
    ]
    write("unicode_compositions.cc", tables)


def write(name, tables):
    text = ("// SPDX-License-Identifier: Apache-2.0\n// Written by make_unicode_table.py; do not edit.\n"
            '#include "data/decode/unicode_internal.h"\n\nnamespace ait::inline v0::internal {\nnamespace {\n\n'
            "// clang-format off\n" + "\n".join(t for t, _ in tables) + "// clang-format on\n\n}  // namespace\n\n"
            + "".join(f"std::span<const std::uint32_t> Unicode{n}() {{ return k{n}; }}\n" for _, n in tables)
            + "\n}  // namespace ait::inline v0::internal\n")
    (pathlib.Path(__file__).parent / name).write_text(text)


if __name__ == "__main__":
    sys.exit(main())
