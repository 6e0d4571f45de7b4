# SPDX-License-Identifier: Apache-2.0
"""The tools of ./dev lint on small made-up trees: each rule is seen to hold and to be broken."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
SPDX = "SPDX-License-Identifier: Apache-2.0"


class TreeTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run_tool(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def assert_refused(self, said: str) -> None:
        code, text = self.check()
        self.assertEqual(code, 1, text)
        self.assertIn(said, text)

    def assert_accepted(self) -> None:
        code, text = self.check()
        self.assertEqual((code, text), (0, ""))


class Arrows(TreeTest):
    def setUp(self) -> None:
        super().setUp()
        self.write("src/base/CMakeLists.txt", "corral_folder(base SOURCES text.cc)\n")
        self.write("src/base/text.h", "")
        self.write("src/host/CMakeLists.txt", "corral_folder(host SOURCES proc.cc DEPENDS corral_base)\n")
        self.write("src/host/proc.cc", '#include "host/proc.h"\n#include "base/text.h"\n')
        self.write("src/gpu/CMakeLists.txt", "corral_folder(gpu SOURCES nvml.cc DEPENDS corral_host)\n")
        self.write("src/gpu/nvml.cc", '#include "base/text.h"\n#include <vector>\n')

    def check(self) -> tuple[int, str]:
        return self.run_tool(sys.executable, str(TOOLS / "check_arrows.py"), str(self.root))

    def test_arrows_along_the_table_are_fine_also_through_another_folder(self) -> None:
        self.assert_accepted()

    def test_include_against_an_arrow(self) -> None:
        self.write("src/host/proc.h", '#include "gpu/device.h"\n')
        self.assert_refused('src/host/proc.h: includes "gpu/device.h"; host may use base')

    def test_link_against_an_arrow(self) -> None:
        self.write("src/base/CMakeLists.txt", "corral_folder(base SOURCES text.cc DEPENDS corral_gpu)\n")
        self.assert_refused("links corral_gpu; base has no arrow to gpu")

    def test_link_in_a_comment_does_not_count(self) -> None:
        self.write("src/host/CMakeLists.txt", "corral_folder(host SOURCES a.cc) # DEPENDS corral_base)\n")
        self.assert_refused("does not link corral_base")

    def test_include_without_link(self) -> None:
        self.write("src/host/CMakeLists.txt", "corral_folder(host SOURCES proc.cc)\n")
        self.assert_refused("src/host/proc.cc: includes base/, but the target corral_host does not")

    def test_shim_takes_two_headers_only(self) -> None:
        self.write("src/trace/wire.h", "")
        self.write("src/trace/writer.h", '#include "trace/wire.h"\n')
        self.write("src/shim/core.cc", '#include "trace/wire.h"\n#include "trace/writer.h"\n')
        self.assert_accepted()
        self.write("src/shim/core.cc", '#include "trace/reader.h"\n')
        self.assert_refused('includes "trace/reader.h"')
        self.write("src/shim/core.cc", '#include "base/text.h"\n')
        self.assert_refused('includes "base/text.h"; shim may use trace')

    def test_what_the_shim_takes_is_bound_like_the_shim(self) -> None:
        self.write("src/trace/CMakeLists.txt", "corral_folder(trace SOURCES reader.cc DEPENDS corral_base)\n")
        self.write("src/trace/writer.h", '#include "base/text.h"\n')
        self.assert_refused('src/trace/writer.h: includes "base/text.h"')

    def test_a_folder_that_the_table_does_not_know(self) -> None:
        self.write("src/misc/things.h", "")
        self.assert_refused("src/misc: a folder without arrows")


class Text(TreeTest):
    def setUp(self) -> None:
        super().setUp()
        subprocess.run(["git", "init", "-q", str(self.root)], check=True, env={**os.environ, "HOME": str(self.root)})
        self.write("src/host/proc.cc", f"// {SPDX}\n// Reads what host/proc.h declares; see <linux/none.h>.\n")
        self.write("src/host/proc.h", f"// {SPDX}\n")
        self.write("run.sh", f"#!/bin/sh\n# {SPDX}\n")

    def check(self) -> tuple[int, str]:
        return self.run_tool(sys.executable, str(TOOLS / "check_text.py"), str(self.root))

    def test_a_tree_that_keeps_the_rules(self) -> None:
        self.assert_accepted()

    def test_licence_line(self) -> None:
        self.write("src/host/proc.h", "#pragma once\n")
        self.assert_refused(f"src/host/proc.h: does not begin with {SPDX}")

    def test_licence_line_must_come_first(self) -> None:
        self.write("run.sh", f"#!/bin/sh\necho\n# {SPDX}\n")
        self.assert_refused("run.sh: does not begin with")

    def test_path_of_a_developers_machine(self) -> None:
        self.write("notes.md", "build in /wo" + "rk/tree first\n")
        self.assert_refused("notes.md:1: ")
        self.write("notes.md", "the fake host's root/proc and tests/work/x are fine\n")
        self.assert_accepted()

    def test_registry_host(self) -> None:
        self.write("notes.md", "from deb.debian." + "org\n")
        self.assert_refused("a package registry's host")

    def test_captured_data_may_hold_anything(self) -> None:
        self.write("tests/fixtures/hosts/a/log", "seen in /ro" + "ot/tree")
        (self.root / "tests/fixtures/hosts/a/trace").write_bytes(b"\xff\xfe")
        self.assert_accepted()

    def test_cited_file_of_ours_that_does_not_exist(self) -> None:
        self.write("src/host/proc.h", f"// {SPDX}\n// Like host/gone.h and linux/elsewhere.h.\n")
        self.assert_refused("src/host/proc.h:2: cites host/gone.h")
        self.write("src/host/proc.h", f"// {SPDX}\n// A rule is host/NAME.cc.\n")
        self.assert_accepted()
        self.write("src/host/proc.h", f"// {SPDX}\n// As PLAN.md says.\n")
        self.assert_refused("src/host/proc.h:2: cites PLAN.md")

    def test_long_file(self) -> None:
        self.write("src/host/proc.h", f"// {SPDX}\n" + "\n" * 600)
        self.assert_refused("601 lines, at most 600")

    def test_ignored_files_are_not_looked_at(self) -> None:
        self.write(".gitignore", "/build/\n")
        self.write("build/made.h", "no licence\n")
        self.assert_accepted()


class Binary(TreeTest):
    def build(self, name: str, text: str, *options: str) -> str:
        self.write(f"{name}.cc", text)
        file = str(self.root / name)
        subprocess.run(["g++", "-o", file, str(self.root / f"{name}.cc"), *options], check=True)
        return file

    def check_binary(self, kind: str, file: str) -> tuple[int, str]:
        return self.run_tool(str(TOOLS / "check_binary.sh"), kind, file)

    def test_a_program_of_libc_alone(self) -> None:
        file = self.build("plain", "int main() {}\n", "-static-libgcc", "-static-libstdc++")
        code, text = self.check_binary("program", file)
        self.assertEqual(code, 0, text)
        self.assertIn("needs libc.so.6", text)

    def test_a_program_with_the_shared_runtime(self) -> None:
        file = self.build("shared", "#include <iostream>\nint main() { std::cout << 1; }\n")
        code, text = self.check_binary("program", file)
        self.assertEqual(code, 1)
        self.assertIn("needs libstdc++.so.6", text)

    def test_a_program_that_asks_for_too_new_a_symbol(self) -> None:
        code = '#include <cstdlib>\nextern "C" unsigned arc4random();\nint main() { return arc4random() == 1; }\n'
        result, text = self.check_binary("program", self.build("new", code))
        self.assertEqual(result, 1)
        self.assertIn("arc4random@GLIBC_2.36", text)

    def test_a_shim_without_the_link_to_the_driver(self) -> None:
        file = self.build("alone.so", 'extern "C" int cuInit(unsigned) { return 0; }\n', "-shared", "-fPIC", "-nostdlib", "-lc")
        code, text = self.check_binary("shim", file)
        self.assertEqual(code, 1)
        self.assertIn("does not need libcorral-driver.so", text)

    def test_a_file_that_is_no_program(self) -> None:
        self.write("text", "no ELF\n")
        self.assertEqual(self.check_binary("program", str(self.root / "text"))[0], 1)


class Tidy(TreeTest):
    def test_a_changed_header_makes_a_file_due_again(self) -> None:
        sys.path.insert(0, str(TOOLS))
        import tidy

        self.write("a.cc", '#include "b.h"\n')
        self.write("b.h", '#include "c.h"\n')
        self.write("c.h", "int c;\n")
        entry = {"directory": str(self.root), "file": "a.cc", "command": f"g++ -I{self.root} -c a.cc"}
        keys = {tidy.key_of(entry, "1")}
        keys.add(tidy.key_of(entry, "1"))
        self.assertEqual(len(keys), 1)
        keys.add(tidy.key_of(entry, "2"))
        self.write("c.h", "int d;\n")
        tidy.content.cache_clear()
        keys.add(tidy.key_of(entry, "1"))
        self.assertEqual(len(keys), 3)


if __name__ == "__main__":
    unittest.main()
