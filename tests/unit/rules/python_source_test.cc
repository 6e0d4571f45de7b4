// SPDX-License-Identifier: Apache-2.0
#include "rules/python_source.h"

#include <gtest/gtest.h>

namespace corral::rules {
namespace {

constexpr std::string_view kVariable = "CUDA_VISIBLE_DEVICES";

std::vector<Assignment> assignments(std::string_view source) {
  return assignments_of(statements_of(source), kVariable);
}

struct Form {
  std::string_view source;
  std::optional<std::string> value;
};

class Sets : public testing::TestWithParam<Form> {};

TEST_P(Sets, is_an_assignment) {
  const auto found = assignments(GetParam().source);
  ASSERT_EQ(found.size(), 1U) << GetParam().source;
  EXPECT_EQ(found[0].value, GetParam().value) << GetParam().source;
}

INSTANTIATE_TEST_SUITE_P(
    python_source, Sets,
    testing::Values(
        Form{R"(os.environ["CUDA_VISIBLE_DEVICES"] = "1")", "1"},
        Form{R"(environ['CUDA_VISIBLE_DEVICES']='1'  # GPU 1)", "1"},
        Form{R"(os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu))", std::nullopt},
        Form{R"(os.environ["CUDA_VISIBLE_DEVICES"] = "1" + more)", std::nullopt},
        Form{R"(os.environ["CUDA_VISIBLE_DEVICES"] += ",1")", std::nullopt},
        Form{R"(os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1"))", "1"},
        Form{R"(os.environ.update(CUDA_VISIBLE_DEVICES="1", OTHER="2"))", "1"},
        Form{"os.environ.update({\n    'A': f(1),\n    'CUDA_VISIBLE_DEVICES': '1',\n})", "1"},
        Form{R"(os.environ |= {"CUDA_VISIBLE_DEVICES": "1"})", "1"},
        Form{R"(os.putenv("CUDA_VISIBLE_DEVICES", "1"))", "1"},
        Form{R"(if late: os.environ["CUDA_VISIBLE_DEVICES"] = "1")", "1"},
        Form{"os.environ[ \\\n  r'CUDA_VISIBLE_DEVICES'] = '1'", "1"}));

class LeavesAlone : public testing::TestWithParam<std::string_view> {};

TEST_P(LeavesAlone, is_no_assignment) { EXPECT_TRUE(assignments(GetParam()).empty()); }

INSTANTIATE_TEST_SUITE_P(
    python_source, LeavesAlone,
    testing::Values(R"(# os.environ["CUDA_VISIBLE_DEVICES"] = "1")",
                    R"(print('os.environ["CUDA_VISIBLE_DEVICES"] = "1"'))",
                    "'''\nos.environ[\"CUDA_VISIBLE_DEVICES\"] = '1'\n'''",
                    R"(if os.environ["CUDA_VISIBLE_DEVICES"] == "1": pass)",
                    R"(x = os.environ.get("CUDA_VISIBLE_DEVICES", "1"))",
                    R"(del os.environ["CUDA_VISIBLE_DEVICES"])",
                    R"(os.environ["HIP_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"])",
                    R"(env = {"CUDA_VISIBLE_DEVICES": "1"})",
                    R"(subprocess.run(x, env={**os.environ, "CUDA_VISIBLE_DEVICES": "1"}))",
                    R"(settings["CUDA_VISIBLE_DEVICES"] = "1")"));

TEST(python_source, an_assignment_knows_its_line_and_its_function) {
  const auto found = assignments(
      "import os\n"
      "class A:\n"
      "    def pick(\n"
      "        self):\n"
      "        '''text\n"
      "        of two lines'''\n"
      "        os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
      "    x = 1\n"
      "if x:\n"
      "    os.environ['CUDA_VISIBLE_DEVICES'] = '2'\n");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].line, 7U);
  EXPECT_EQ(found[0].scope, "pick");
  EXPECT_EQ(found[1].line, 10U);
  EXPECT_EQ(found[1].scope, "<module>");
}

TEST(python_source, a_statement_covers_all_its_lines) {
  const auto statements = statements_of("a = f(\n  1,\n  '#',\n)\nb = 2; c = 3\n");
  ASSERT_EQ(statements.size(), 3U);
  EXPECT_EQ(statement_at(statements, 3), &statements[0]);
  EXPECT_EQ(statement_at(statements, 5), nullptr) << "one of two, and nobody knows which";
  EXPECT_EQ(statement_at(statements, 6), nullptr);
  EXPECT_TRUE(statements[0].has_text("#"));
}

TEST(python_source, the_arguments_of_a_call) {
  const auto statements = statements_of("x = torch.ones(1, f(2)).cuda()\ndef cuda(self): pass\n");
  ASSERT_TRUE(statements[0].arguments_of("cuda"));
  EXPECT_TRUE(statements[0].arguments_of("cuda")->empty());
  EXPECT_EQ(statements[0].arguments_of("ones")->size(), 6U);
  EXPECT_FALSE(statements[0].arguments_of("x"));
  EXPECT_FALSE(statements[1].arguments_of("cuda")) << "a definition is no call";
}

TEST(python_source, anything_is_read_to_its_end) {
  for (const std::string_view odd :
       {"'", "\"\"\"", "((((", "))))", "\\", "x = '\\", "\xff\xfe", "f(", "a\\\n", "def", "0x"})
    (void)assignments(odd);
  EXPECT_EQ(line_of("a\n  b  \n", 2), "b");
  EXPECT_EQ(line_of("a\n", 9), "");
}

}  // namespace
}  // namespace corral::rules
