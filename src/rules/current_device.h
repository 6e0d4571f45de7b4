// SPDX-License-Identifier: Apache-2.0
// What a stack says of the kind of call: memory taken, a wait, a stream. Shared by the rules for
// calls that act on the current device because they were given none.
#pragma once

#include <optional>
#include <string_view>

#include "rules/stray_context.h"

namespace corral::rules {

enum class Framework { torch, cupy, numba };

// The framework that took memory or made an array, on whatever device it was told or on the current
// one; nullopt: this is not such a call, or not by a line of the user's.
std::optional<Framework> allocates(const Stray& stray);

// Whether a call on device 0 was given no device and took the current one.
enum class ByDefault {
  no,       // another call, or the user's line gives a device
  yes,      // the user's line makes the call, and gives none
  unknown,  // the line was not read, or does not show the call: it may have been given device 0
};

// torch.cuda.synchronize().
ByDefault synchronizes_current_device(const Stray& stray);

// The making of a stream or an event of PyTorch.
ByDefault makes_stream_or_event(const Stray& stray);

// What the text of the user's line says of the device.
struct DeviceText {
  enum class Says {
    unknown,   // nothing, more than one thing, or the file was not read
    bare,      // a device without a number: .cuda(), "cuda"
    number,    // the stray's own number: "cuda:0", Device(0)
    computed,  // a number that the program works out: f"cuda:{rank}"
  };
  Says says = Says::unknown;
  unsigned line = 0;  // where it says so: the statement's, or that of the only one that assigns a
                      // variable in it
};
DeviceText device_text(const Stray& stray);

// Whether the thread had chosen another device before, by a call that is in the record: then its
// current device is not 0.
bool had_chosen(const Stray& stray);

}  // namespace corral::rules
