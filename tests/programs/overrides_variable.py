# SPDX-License-Identifier: Apache-2.0
"""Brings its own CUDA_VISIBLE_DEVICES along, whatever the job was given, and then strays to GPU 0."""
import os
import pathlib
import runpy

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"  # the fault: it replaces what the job was given

runpy.run_path(str(pathlib.Path(__file__).with_name("stray_default_device.py")))
