// SPDX-License-Identifier: Apache-2.0
// Folders that somebody else can write to, or made first, are not believed.
#include "base/private_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace corral {
namespace {

using ::testing::HasSubstr;

class PrivateFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "corral-base-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    parent_ = name;
    folder_ = name + "/folder";
  }
  void TearDown() override { std::filesystem::remove_all(parent_); }

  unsigned mode() const {
    struct stat found{};
    return ::stat(folder_.c_str(), &found) == 0 ? found.st_mode & 07777U : 0;
  }

  std::string parent_;
  std::string folder_;
};

TEST_F(PrivateFolder, is_made_with_its_mode_and_taken_when_it_is_there) {
  const mode_t before = ::umask(0077);
  const auto made = make_private_folder(folder_, 0755);
  ::umask(before);
  EXPECT_TRUE(made);
  EXPECT_EQ(mode(), 0755U);
  EXPECT_TRUE(make_private_folder(folder_));
  EXPECT_EQ(mode(), 0755U) << "one that is there stays as it is";
}

TEST_F(PrivateFolder, that_others_can_write_to_is_an_error_with_its_mode) {
  ASSERT_TRUE(make_private_folder(folder_));
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
  const auto checked = check_private_folder(folder_);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().what, HasSubstr(folder_));
  EXPECT_THAT(checked.error().what, HasSubstr("only this user can write to"));
  EXPECT_THAT(checked.error().what, HasSubstr("with mode 1777"));
  EXPECT_FALSE(make_private_folder(folder_));
}

TEST_F(PrivateFolder, of_another_user_is_an_error_with_the_owner) {
  // Root gives one away; another user takes root's.
  const bool root = ::geteuid() == 0;
  ASSERT_TRUE(make_private_folder(folder_));
  if (root) {
    ASSERT_EQ(::chown(folder_.c_str(), 65534, 65534), 0);
  }
  EXPECT_THAT(check_private_folder(root ? folder_ : "/usr").error().what,
              HasSubstr(root ? "it is uid 65534's" : "it is uid 0's"));
}

TEST_F(PrivateFolder, is_not_a_link_to_one) {
  ASSERT_TRUE(make_private_folder(parent_ + "/real"));
  std::filesystem::create_symlink("real", folder_);
  EXPECT_THAT(make_private_folder(folder_).error().what, HasSubstr("no folder"));
}

TEST_F(PrivateFolder, that_is_missing_or_has_no_folder_above_it_is_an_error) {
  EXPECT_FALSE(check_private_folder(folder_));
  EXPECT_FALSE(make_private_folder(folder_ + "/below"));
}

}  // namespace
}  // namespace corral
