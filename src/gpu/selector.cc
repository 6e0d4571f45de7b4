// SPDX-License-Identifier: Apache-2.0
// Parsing and resolving selections.
#include "gpu/selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"

namespace corral::gpu {
namespace {

constexpr std::string_view kForms =
    "a selection is numbers (1 or 0,2-3), a UUID (GPU-2b68…), a PCI address (0000:00:07.0), a MIG "
    "instance (MIG-…), all or none";

// What one field of the list names.
struct Picked {
  std::vector<unsigned> gpus;
  std::vector<MigRef> mig;
};

std::string quoted(std::string_view text) { return "'" + printable(text) + "'"; }

bool has_prefix(std::string_view text, std::string_view prefix) {
  return lower(text).starts_with(lower(prefix));
}

// The UUID of a candidate, with what a person knows it by.
std::string candidate(const Gpu& gpu) { return fmt::format("{} (GPU {})", gpu.uuid, gpu.index); }

// Only hex digits and dashes: what can follow "GPU-" and "MIG-".
bool is_uuid_text(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == '-';
  });
}

// What to add to an error about a GPU that is not in the list.
std::string hidden_hint(const Inventory& inventory) {
  std::vector<std::string> hidden;
  for (const Gpu& gpu : inventory.hidden)
    hidden.push_back(fmt::format("{} at {} ({})", gpu.uuid.empty() ? "a GPU" : gpu.uuid,
                                 gpu.pci.text(), gpu.trouble));
  if (hidden.empty()) return {};
  return fmt::format("without a number here, because it is closed to this process: {}",
                     join_and(hidden));
}

Result<Picked> pick_number(std::string_view field, const Inventory& inventory) {
  const auto dash = field.find('-');
  const std::string_view first_text = field.substr(0, dash);
  const std::string_view last_text =
      dash == std::string_view::npos ? first_text : field.substr(dash + 1);
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (!digits(first_text) || !digits(last_text))
    return fail(quoted(field) + " is no GPU number and no range of them", std::string(kForms));
  const auto first = parse_number<unsigned>(first_text);
  const auto last = parse_number<unsigned>(last_text);
  const auto missing = [&](std::string_view number) {
    return fail(fmt::format("no GPU {}: this machine has {}", number, describe_gpus(inventory)),
                hidden_hint(inventory));
  };
  if (!first || *first >= inventory.gpus.size()) return missing(first_text);
  if (!last || *last >= inventory.gpus.size()) return missing(last_text);
  if (*first > *last)
    return fail(fmt::format("the range {} runs backwards", quoted(field)),
                fmt::format("write {}-{}", *last, *first));
  Picked out;
  for (unsigned i = *first; i <= *last; ++i) out.gpus.push_back(i);
  return out;
}

Result<Picked> pick_uuid(std::string_view field, const Inventory& inventory) {
  const std::string_view digits = field.substr(4);
  if (digits.empty() || !is_uuid_text(digits))
    return fail(quoted(field) + " is no UUID: hex digits are expected after 'GPU-'",
                "nvidia-smi -L prints the UUIDs");
  std::vector<std::string> found;
  Picked out;
  for (const Gpu& gpu : inventory.gpus) {
    if (!has_prefix(gpu.uuid, field)) continue;
    out.gpus.push_back(gpu.index);
    found.push_back(candidate(gpu));
  }
  if (found.size() > 1)
    return fail(fmt::format("{} is the beginning of more than one UUID: {}", quoted(field),
                            join_and(found)),
                "write more digits");
  if (found.empty()) {
    std::vector<std::string> all;
    for (const Gpu& gpu : inventory.gpus)
      all.push_back(gpu.uuid.empty() ? fmt::format("one of unknown UUID (GPU {})", gpu.index)
                                     : candidate(gpu));
    return fail(fmt::format("no GPU {}: this machine has {}", printable(field),
                            all.empty() ? "none" : join_and(all)),
                hidden_hint(inventory));
  }
  return out;
}

Result<Picked> pick_mig(std::string_view field, const Inventory& inventory) {
  if (field.size() <= 4)
    return fail(quoted(field) + " names no MIG instance", "nvidia-smi -L prints their UUIDs");
  std::vector<std::string> found;
  std::vector<std::string> all;
  Picked out;
  for (const Gpu& gpu : inventory.gpus) {
    for (unsigned i = 0; i < gpu.mig.size(); ++i) {
      const MigInstance& instance = gpu.mig[i];
      if (instance.uuid.empty()) continue;
      all.push_back(fmt::format("{} (on GPU {})", instance.uuid, gpu.index));
      if (!has_prefix(instance.uuid, field)) continue;
      out.mig.push_back({gpu.index, i});
      found.push_back(all.back());
    }
  }
  if (found.size() > 1)
    return fail(fmt::format("{} is the beginning of more than one MIG instance: {}", quoted(field),
                            join_and(found)),
                "write more digits");
  if (found.empty())
    return fail(fmt::format("no MIG instance {}: this machine has {}", printable(field),
                            all.empty() ? "none" : join_and(all)));
  return out;
}

Result<Picked> pick_address(std::string_view field, const Inventory& inventory) {
  CORRAL_TRY(const host::PciAddress address, host::PciAddress::parse(field));
  std::vector<std::string> all;
  for (const Gpu& gpu : inventory.gpus) {
    if (gpu.pci == address) return Picked{{gpu.index}, {}};
    all.push_back(fmt::format("{} (GPU {})", gpu.pci.text(), gpu.index));
  }
  return fail(fmt::format("no GPU at {}: this machine has {}", address.text(),
                          all.empty() ? "none" : join_and(all)),
              hidden_hint(inventory));
}

Result<Picked> pick(std::string_view field, const Inventory& inventory) {
  if (has_prefix(field, "GPU-")) return pick_uuid(field, inventory);
  if (has_prefix(field, "MIG-")) return pick_mig(field, inventory);
  if (has_prefix(field, "any:") || has_prefix(field, "linked:"))
    return fail(quoted(field) + " is not available yet", "name the GPUs, for example 0,1");
  if (field.find(':') != std::string_view::npos) return pick_address(field, inventory);
  if (lower(field) == "all" || lower(field) == "none")
    return fail(fmt::format("{} stands alone, not in a list", quoted(field)));
  return pick_number(field, inventory);
}

// Refuses what the process may not open: the job could not either.
Result<void> check_accessible(unsigned index, const Inventory& inventory) {
  const Gpu& gpu = inventory.gpus[index];
  if (gpu.accessible != false) return {};
  std::vector<std::string> open;
  for (const Gpu& other : inventory.gpus)
    if (other.accessible != false) open.push_back(std::to_string(other.index));
  return fail(fmt::format("GPU {} is closed to this process: {} cannot be opened", index, gpu.node),
              open.empty() ? "no GPU is open to it; ask whoever started the session for one"
                           : fmt::format("open to it: GPU {}", join_and(open)));
}

Result<Selection> select_all(const Inventory& inventory) {
  Selection out;
  for (const Gpu& gpu : inventory.gpus)
    if (gpu.accessible != false) out.gpus.push_back(gpu.index);
  if (!out.gpus.empty()) return out;
  if (inventory.gpus.empty())
    return fail("'all' selects nothing: this machine has no GPU",
                "use none for a job that needs no GPU");
  return fail("'all' selects nothing: no GPU is open to this process",
              "use none for a job that needs no GPU");
}

// Adds one field's GPUs to what the fields before it named.
Result<void> add(const Picked& picked, std::string_view field, const Inventory& inventory,
                 std::set<unsigned>& whole, std::set<MigRef>& mig) {
  for (const unsigned index : picked.gpus) {
    if (!whole.insert(index).second)
      return fail(fmt::format("GPU {} is named twice, the second time by {}", index, quoted(field)),
                  "name each GPU once");
    CORRAL_CHECK(check_accessible(index, inventory));
  }
  for (const MigRef& ref : picked.mig) {
    if (!mig.insert(ref).second)
      return fail(fmt::format("{} is named twice", inventory.gpus[ref.gpu].mig[ref.instance].uuid),
                  "name each instance once");
    CORRAL_CHECK(check_accessible(ref.gpu, inventory));
  }
  for (const MigRef& ref : mig)
    if (whole.contains(ref.gpu))
      return fail(fmt::format("GPU {} is named whole and by its instance {}", ref.gpu,
                              inventory.gpus[ref.gpu].mig[ref.instance].uuid),
                  "name either the GPU or its instances");
  return {};
}

}  // namespace

std::string describe_gpus(const Inventory& inventory) {
  constexpr std::size_t kListed = 3;
  const std::size_t count = inventory.gpus.size();
  if (count == 0) return "none";
  if (count > kListed) return fmt::format("0 to {}", count - 1);
  std::vector<std::string> numbers;
  for (const Gpu& gpu : inventory.gpus) numbers.push_back(std::to_string(gpu.index));
  return join_and(numbers);
}

Result<Selection> select(std::string_view text, const Inventory& inventory) {
  const std::string_view all = trim(text);
  if (all.empty())
    return fail("the selection of GPUs is empty",
                "write none for a job that must touch no GPU; " + std::string(kForms));
  if (lower(all) == "none") return Selection{};
  if (lower(all) == "all") return select_all(inventory);

  std::set<unsigned> whole;
  std::set<MigRef> mig;
  for (const std::string_view raw : split(all, ',')) {
    const std::string_view field = trim(raw);
    if (field.empty())
      return fail(fmt::format("{} has an empty field", quoted(all)), "take the extra comma out");
    CORRAL_TRY(const Picked picked, pick(field, inventory));
    CORRAL_CHECK(add(picked, field, inventory, whole, mig));
  }
  Selection out;
  out.mig.assign(mig.begin(), mig.end());
  for (const MigRef& ref : out.mig) whole.insert(ref.gpu);
  out.gpus.assign(whole.begin(), whole.end());
  return out;
}

Result<std::string> visible_devices(const Selection& selection, const Inventory& inventory) {
  if (selection.empty()) return "NoDevFiles";
  std::vector<std::string> uuids;
  for (const unsigned index : selection.gpus) {
    const Gpu& gpu = inventory.gpus[index];
    bool whole = true;
    for (const MigRef& ref : selection.mig) {
      if (ref.gpu != index) continue;
      whole = false;
      uuids.push_back(gpu.mig[ref.instance].uuid);
    }
    if (whole) uuids.push_back(gpu.uuid);
    if (uuids.back().empty())
      return fail(fmt::format("the UUID of GPU {} is unknown", index),
                  "nvidia-smi -L starts a sleeping GPU and shows it");
  }
  return join(uuids, ",");
}

}  // namespace corral::gpu
