// SPDX-License-Identifier: Apache-2.0
// The journal files. All reading and locking of one goes through one descriptor: closing another
// one of the same file would drop the lock.
#include "power/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/file.h"
#include "base/private_folder.h"
#include "host/proc.h"

namespace corral::power {
namespace {

constexpr std::string_view kPrefix = "power-";
constexpr std::string_view kSuffix = ".json";
constexpr std::string_view kUnfinishedPrefix = "making-";
constexpr std::size_t kLimitBytes = 64U << 10;
constexpr int kSchema = 1;
constexpr std::size_t kBootIdLength = 36;  // a UUID in text

bool is_uuid(std::string_view text) {
  return text.starts_with("GPU-") && text.size() < 128 &&
         std::ranges::all_of(
             text,
             [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; });
}

std::string file_name(std::string_view gpu) { return fmt::format("{}{}{}", kPrefix, gpu, kSuffix); }

template <class Number>
Result<Number> number(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return fail(fmt::format("\"{}\" is missing", name));
  // Not get<Number>(): it would cut what does not fit.
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() == 0 ||
      found->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<Number>::max()))
    return fail(fmt::format("\"{}\" is not a number that can be", name));
  return static_cast<Number>(found->get<std::uint64_t>());
}

Result<std::string> text_of(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string())
    return fail(fmt::format("\"{}\" is missing or no text", name));
  return found->get<std::string>();
}

// A lock of the process (not of the open file description, which a forked child would share): true
// when it is ours now.
Result<bool> take_lock(int fd, const std::string& path) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd, F_SETLK, &lock) == 0) return true;
  if (errno == EACCES || errno == EAGAIN) return false;
  return fail_sys("lock " + path, errno);
}

// The folder must be ours and closed to others' writing: whoever can write a journal there says
// what root sets a card to.
Result<void> make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), error);
  if (error) return fail("make the folder of " + folder + ": " + error.message());
  return make_private_folder(folder);
}

Result<void> sync_folder(const std::string& folder) {
  CORRAL_TRY(const Fd fd, open_file(folder, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0) return fail_sys("fsync " + folder, errno);
  return {};
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

Result<std::string> read_through(int fd, const std::string& path) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::pread(fd, buffer, sizeof buffer, static_cast<off_t>(text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_sys("read " + path, errno);
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > kLimitBytes) return fail(fmt::format("larger than {} bytes", kLimitBytes));
  }
}

Result<JournalEntry> read_entry(int fd, const std::string& path) {
  CORRAL_TRY(const std::string text, read_through(fd, path));
  CORRAL_TRY(JournalEntry entry, parse_journal(text));
  if (!path.ends_with("/" + file_name(entry.gpu)))
    return fail("it is of another GPU than its name says: " + entry.gpu);
  return entry;
}

// The holder in words, while it can be seen.
std::string holder(const JournalEntry& entry) {
  const auto stat = host::read_stat(host::Root(), entry.pid);
  if (!stat || stat->start_ticks != entry.start_ticks) return fmt::format("pid {}", entry.pid);
  const auto command = host::describe_process(host::Root(), entry.pid);
  return command ? fmt::format("pid {} ({})", entry.pid, *command)
                 : fmt::format("pid {}", entry.pid);
}

std::unexpected<Error> in_the_way(const std::string& path) {
  const auto file = open_file(path, O_RDONLY | O_NOFOLLOW);
  const auto entry = file ? read_entry(file->get(), path) : std::unexpected(file.error());
  if (!entry) return fail(fmt::format("{}: {}", path, entry.error().what), "try again");
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(file->get(), F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK)
    return fail(
        fmt::format("{}: pid {}, which is gone, had capped it from {:g} to {:g} W, and that "
                    "was not put back; see {}",
                    entry->gpu, entry->pid, entry->before_mw / 1000.0, entry->set_mw / 1000.0,
                    path),
        "corral power show says why");
  return fail(fmt::format("{} has a cap of {:g} W already, of {}", entry->gpu,
                          entry->set_mw / 1000.0, holder(*entry)),
              "wait for it to end, or end it: it puts its limit back");
}

// A file that disappears with this object, unless it was linked to its name.
struct Unfinished {
  std::string path;
  Fd fd;
  ~Unfinished() {
    if (!path.empty()) ::unlink(path.c_str());
  }
};

void look_at(const std::string& path, FoundJournals& found) {
  auto fd = open_file(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  if (!fd) {
    if (fd.error().sys != ENOENT) found.unusable.push_back({path, fd.error().what, false, Fd()});
    return;
  }
  struct stat file{};
  if (::fstat(fd->get(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != ::geteuid())
    return found.unusable.push_back({path, "not a file of this user", false, Fd()});
  const auto locked = take_lock(fd->get(), path);
  if (!locked) return found.unusable.push_back({path, locked.error().what, true, Fd()});
  // Removed by its holder before we had the lock.
  struct stat named{};
  if (*locked && (::lstat(path.c_str(), &named) != 0 || named.st_ino != file.st_ino)) return;
  auto entry = read_entry(fd->get(), path);
  if (!entry)
    found.unusable.push_back({path, entry.error().what, !*locked, *std::move(fd)});
  else if (*locked)
    found.left.push_back({path, *std::move(fd), *std::move(entry)});
  else
    found.held.push_back(*std::move(entry));
}

}  // namespace

std::string journal_text(const JournalEntry& entry) {
  const nlohmann::json object = {{"schema", kSchema},
                                 {"boot_id", entry.boot_id},
                                 {"gpu", entry.gpu},
                                 {"before_mw", entry.before_mw},
                                 {"set_mw", entry.set_mw},
                                 {"pid", entry.pid},
                                 {"start_ticks", entry.start_ticks}};
  return object.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<JournalEntry> parse_journal(std::string_view text) {
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return fail("not a whole JSON object");
  CORRAL_TRY(const int schema, number<int>(object, "schema"));
  if (schema != kSchema) return fail(fmt::format("schema {}, not {}", schema, kSchema));
  JournalEntry entry;
  CORRAL_TRY(entry.boot_id, text_of(object, "boot_id"));
  CORRAL_TRY(entry.gpu, text_of(object, "gpu"));
  CORRAL_TRY(entry.before_mw, number<unsigned>(object, "before_mw"));
  CORRAL_TRY(entry.set_mw, number<unsigned>(object, "set_mw"));
  CORRAL_TRY(entry.pid, number<pid_t>(object, "pid"));
  CORRAL_TRY(entry.start_ticks, number<std::uint64_t>(object, "start_ticks"));
  if (entry.boot_id.size() != kBootIdLength) return fail("\"boot_id\" is not one");
  if (!is_uuid(entry.gpu)) return fail("\"gpu\" is not the UUID of a GPU");
  return entry;
}

Result<Journal> write_journal(const std::string& folder, const JournalEntry& entry) {
  if (!is_uuid(entry.gpu)) return fail("power journal: '" + entry.gpu + "' is no UUID of a GPU");
  CORRAL_CHECK(make_folder(folder));
  const std::string path = folder + "/" + file_name(entry.gpu);
  Unfinished file{
      fmt::format("{}/{}{}-{}", folder, kUnfinishedPrefix, ::getpid(), file_name(entry.gpu)), Fd()};
  // Left by a process of the same pid that was killed: never linked, so nobody's.
  ::unlink(file.path.c_str());
  CORRAL_TRY(file.fd, open_file(file.path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  CORRAL_TRY(const bool locked, take_lock(file.fd.get(), file.path));
  if (!locked) return fail(file.path + ": locked by another process");
  if (auto written = write_all(file.fd.get(), journal_text(entry)); !written)
    return fail_sys("write " + file.path, written.error().sys);
  if (::fsync(file.fd.get()) != 0) return fail_sys("fsync " + file.path, errno);
  // Locked before it has its name: nobody sees it without its holder. And never over another's.
  if (::link(file.path.c_str(), path.c_str()) != 0)
    return errno == EEXIST ? in_the_way(path) : fail_sys("link " + path, errno);
  Journal journal{path, std::move(file.fd), entry};
  if (auto synced = sync_folder(folder); !synced) {
    ::unlink(path.c_str());
    return std::unexpected(synced.error());
  }
  return journal;
}

Result<void> check_free(const std::string& folder, const std::string& gpu) {
  const std::string path = folder + "/" + file_name(gpu);
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0 && errno == ENOENT) return {};
  return in_the_way(path);
}

Result<void> remove_journal(const Journal& journal) {
  if (::unlink(journal.path.c_str()) != 0) return fail_sys("remove " + journal.path, errno);
  return sync_folder(folder_of(journal.path));
}

Result<std::string> set_aside(const std::string& path) {
  constexpr int kMost = 1000;
  for (int i = 1; i <= kMost; ++i) {
    std::string aside = fmt::format("{}.aside-{}", path, i);
    // link, not rename: it must not replace an earlier one.
    if (::link(path.c_str(), aside.c_str()) == 0) {
      if (::unlink(path.c_str()) != 0) return fail_sys("remove " + path, errno);
      return aside;
    }
    if (errno != EEXIST) return fail_sys("rename " + path, errno);
  }
  return fail(fmt::format("{}: {} files are set aside beside it", path, kMost), "remove them");
}

void remove_unfinished(const std::string& folder) {
  const auto names = list_folder(folder);
  if (!names || !check_private_folder(folder)) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(kUnfinishedPrefix) || name.find(kPrefix) == name.npos ||
        !name.ends_with(kSuffix))
      continue;
    const std::string path = folder + "/" + name;
    const auto file = open_file(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    struct stat found{};
    // What is empty may be a moment before its lock.
    if (!file || ::fstat(file->get(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size == 0)
      continue;
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (::fcntl(file->get(), F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK) ::unlink(path.c_str());
  }
}

Result<FoundJournals> find_journals(const std::string& folder) {
  FoundJournals found;
  const auto names = list_folder(folder);
  if (!names && names.error().sys == ENOENT) return found;
  if (!names) return std::unexpected(names.error());
  CORRAL_CHECK(check_private_folder(folder));
  for (const std::string& name : *names)
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) look_at(folder + "/" + name, found);
  return found;
}

}  // namespace corral::power
