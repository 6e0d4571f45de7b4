# SPDX-License-Identifier: Apache-2.0
"""Names of the CUDA driver's functions, from the toolkit's headers: `driver_names.py` writes
tests/fixtures/driver_names/cuda-VERSION.txt, for machines that have no headers."""
import pathlib
import re
import sys

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures/driver_names"
HEADERS = ("cuda.h", "cudaEGL.h", "cudaGL.h", "cudaProfiler.h", "cudaVDPAU.h")


def header_folder():
    """Where the newest toolkit's headers are; None: there are none."""
    folders = [p.parent for p in pathlib.Path("/usr/local").glob("cuda*/include/cuda.h")]
    return max(folders, key=version, default=None)


def version(folder):
    """13000 for CUDA 13.0."""
    return int(re.search(r"#define CUDA_VERSION (\d+)", (folder / "cuda.h").read_text())[1])


def names_in(folder):
    """Declared functions, the versioned names that the headers map them to, and what CUPTI has numbers for."""
    names = set()
    for header in HEADERS:
        path = folder / header
        if path.exists():
            text = path.read_text()
            names |= set(re.findall(r"\bCUDAAPI\s+(cu[A-Z]\w+)\s*\(", text))
            names |= set(re.findall(r"^\s*#\s*define\s+cu[A-Z]\w+\s+(cu[A-Z]\w+)\s*$", text, re.MULTILINE))
            for form, name in re.findall(r"__CUDA_API_(PTSZ|PTDS)\((cu[A-Z]\w+)\)", text):
                names |= {name, f"{name}_{form.lower()}"}
    cbid = folder / "cupti_driver_cbid.h"
    if cbid.exists():
        names |= set(re.findall(r"\bCUPTI_DRIVER_TRACE_CBID_(cu[A-Z0-9]\w+)", cbid.read_text()))
    return names


def kept_names():
    """All that the fixtures hold."""
    names = set()
    for path in FIXTURES.glob("cuda-*.txt"):
        names |= set(path.read_text().split())
    return names


if __name__ == "__main__":
    place = header_folder()
    if place is None:
        sys.exit("no cuda.h under /usr/local: install the CUDA toolkit's headers")
    number = version(place)
    file = FIXTURES / f"cuda-{number // 1000}.{number % 1000 // 10}.txt"
    file.write_text("\n".join(sorted(names_in(place))) + "\n")
    print(file, len(names_in(place)))
