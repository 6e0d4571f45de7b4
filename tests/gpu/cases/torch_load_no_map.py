# SPDX-License-Identifier: Apache-2.0
# Situation: a checkpoint that was saved from cuda:0 is loaded without map_location
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.load-without-map-location
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: torch.load(path, map_location="cpu"), or "cuda:1"
import os
import tempfile

import torch
from _contexts import report


def save_as_if_from(tag, state, path):
    """Marks the storages as another GPU's without touching that GPU: a tagger that is asked first."""
    torch.serialization.register_package(1, lambda storage: tag, lambda storage, location: None)
    torch.save(state, path)


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "checkpoint.pt")
    save_as_if_from("cuda:0", {"weights": torch.arange(6.0)}, path)
    state = torch.load(path)  # CULPRIT
report(result=float(state["weights"].to("cuda:1").sum()))
