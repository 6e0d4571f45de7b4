// SPDX-License-Identifier: Apache-2.0
// The self-test believes only a refusal: not a missing file, not a driver's own error.
#include "isolate/selftest.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "in_child.h"
#include "isolate/apply.h"
#include "isolate/landlock.h"
#include "must_work.h"

namespace corral::isolate {
namespace {

RefusedNode refused(std::string path, Node::Type type = Node::Type::character) {
  return {.node = {.path = std::move(path), .type = type, .major = 1, .minor = 7}, .why = "GPU 0"};
}

Result<void> test(const RefusedNode& node) { return self_test(std::span(&node, 1), {}); }

TEST(selftest, an_open_node_fails_and_is_named) {
  const auto result = test(refused("/dev/full"));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().what.find("/dev/full (GPU 0)"), std::string::npos);
  EXPECT_NE(result.error().what.find("it opened"), std::string::npos);
}

TEST(selftest, a_node_that_is_gone_is_not_a_refused_one) {
  EXPECT_FALSE(test(refused("/dev/corral-is-not-here")));
  EXPECT_TRUE(test(refused("/dev/corral-is-not-here", Node::Type::missing)));
}

TEST(selftest, what_lies_over_a_node_is_not_the_node) {
  // /dev/null under another number is what a mount makes of a node.
  EXPECT_TRUE(test(refused("/dev/null")));
  RefusedNode null = refused("/dev/null");
  null.node.minor = 3;
  EXPECT_FALSE(test(null)) << "the null device itself was to be refused";
}

TEST(selftest, a_node_below_a_cover_is_tried_by_itself) {
  const RefusedNode full = refused("/dev/full");
  const auto kept = keep_uncovered(std::span(&full, 1));
  ASSERT_EQ(kept.size(), 1U);
  const auto result = self_test_uncovered(kept);
  ASSERT_FALSE(result) << "nothing refuses it here";
  EXPECT_NE(result.error().what.find("/dev/full itself"), std::string::npos) << result.error().what;
  EXPECT_TRUE(keep_uncovered(std::vector{refused("/dev/corral-is-not-here")}).empty());
}

TEST(selftest, an_error_of_the_driver_is_not_a_refusal) {
  const std::string path = "/tmp/corral-selftest-" + std::to_string(::getpid());
  // 195:254 without its driver: ENXIO, which means that the open went through.
  if (::mknod(path.c_str(), S_IFCHR | 0600, makedev(195, 253)) != 0)
    GTEST_SKIP() << "making nodes needs root";
  const auto result = test(refused(path));
  ::unlink(path.c_str());
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().what.find("No such device"), std::string::npos) << result.error().what;
}

TEST(selftest, names_that_the_plan_leaves_open_are_not_tried) {
  Plan plan{.layers = {Layer::landlock}, .enforced = "landlock", .refused = {refused("/dev/full")}};
  const auto entered = [&] {
    return in_child([&] { return enter(Prepared{.plan = plan}) ? 0 : 1; });
  };
  EXPECT_EQ(entered(), 1) << "nothing holds it here, and the plan says that Landlock does";
  plan.refused[0].by_path = false;
  EXPECT_EQ(entered(), 0);
  plan.layers = {Layer::cgroup2, Layer::landlock};
  EXPECT_EQ(entered(), 1);
}

TEST(selftest, an_allowed_node_must_open) {
  const AllowedNode open{.path = "/dev/null", .why = "GPU 1"};
  EXPECT_TRUE(self_test({}, std::span(&open, 1)));
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  // Allowed and refused at once: what a wrong plan would ask for.
  EXPECT_EQ(in_child([] {
              Request request;
              request.methods = {Method::landlock};
              request.refuse_paths = {"/dev/full"};
              auto plan = plan_for(request);
              if (!plan) return 10;
              plan->allowed = {{.path = "/dev/full", .why = "GPU 1"}};
              auto prepared = prepare(*plan);
              if (!prepared) return 11;
              const auto entered = enter(*prepared);
              if (entered) return 1;
              return entered.error().what.find("/dev/full (GPU 1) must open") != std::string::npos
                         ? 0
                         : 2;
            }),
            0);
}

}  // namespace
}  // namespace corral::isolate
