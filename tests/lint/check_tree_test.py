#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The red path of check_tree.py: every rule must find its sin, and a clean tree must pass."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).with_name("check_tree.py")
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


def header(path, body=""):
    guard = "AIT_" + path.removeprefix("include/ait/").replace("/", "_").replace(".", "_").upper() + "_"
    return f"{SPDX}#ifndef {guard}\n#define {guard}\n{body}\n#endif  // {guard}\n"


CLEAN = {
    "include/ait/comm/work.h": header("include/ait/comm/work.h", '#include "ait/base/status.h"'),
    "include/ait/base/status.h": header("include/ait/base/status.h", '#include "absl/status/status.h"'),
    "src/comm/work.cc": SPDX + '#include "ait/comm/work.h"\n// abort() in a comment is fine\n',
    "tests/comm/work_test.cc": SPDX,
    "tests/base/status_test.cc": SPDX,
}


def run(changes):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in ("include/ait", "src", "tests", "benchmarks", "examples"):
            (root / name).mkdir(parents=True)
        for path, text in (CLEAN | changes).items():
            if text is not None:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
        done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout


class CheckTree(unittest.TestCase):
    def expect(self, changes, *messages):
        code, out = run(changes)
        self.assertEqual(code, 1, out)
        for message in messages:
            self.assertIn(message, out)

    def test_clean_tree_passes(self):
        self.assertEqual(run({})[0], 0, run({})[1])

    def test_upward_include(self):
        self.expect({"src/comm/work.cc": SPDX + '#include "ait/data/order.h"\n'}, "data lies above it")

    def test_upward_include_of_an_internal_header(self):
        self.expect({"src/base/status.cc": SPDX + '#include "comm/work_internal.h"\n'}, "comm lies above it")

    def test_torch_on_the_lower_floor(self):
        self.expect({"src/comm/work.cc": SPDX + "#include <ATen/ATen.h>\n"}, "lower floor")

    def test_torch_in_a_public_header(self):
        path = "include/ait/parallel/engine.h"
        self.expect({path: header(path, "#include <torch/torch.h>"), "tests/parallel/engine_test.cc": SPDX},
                    "forward-declare at::Tensor")

    def test_heavy_dependency_in_a_public_header(self):
        path = "include/ait/comm/work.h"
        self.expect({path: header(path, "#include <iostream>")}, "includes iostream")
        self.expect({path: header(path, '#include "absl/strings/str_cat.h"')}, "includes absl/strings")

    def test_printing_exiting_and_signals(self):
        for call in ("std::cout << 1;", "abort();", "std::exit(1);", "fprintf(stderr, x);", "signal(2, f);"):
            self.expect({"src/comm/work.cc": f"{SPDX}void F() {{ {call} }}\n"}, "the library calls")

    def test_sizes(self):
        self.expect({"src/comm/work.cc": SPDX + "\n" * 600}, "601 lines, allowed 600")

    def test_missing_spdx_guard_and_prefix(self):
        path = "include/ait/comm/work.h"
        self.expect({path: "#pragma once\n#define CHECK 1\n"}, "SPDX", "include guard", "CHECK lacks the prefix")

    def test_feature_switch_in_a_public_header(self):
        path = "include/ait/comm/work.h"
        self.expect({path: header(path, "#ifdef USE_CUDA\n#endif")}, "#if in a public header")

    def test_header_without_test(self):
        self.expect({"tests/comm/work_test.cc": None}, "no tests/comm/work_test.cc")

    def test_using_namespace(self):
        self.expect({"src/comm/work.cc": SPDX + "using namespace std;\n"}, "using namespace")


if __name__ == "__main__":
    unittest.main()
