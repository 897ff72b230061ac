"""Runs the TensorBoard plugin on one trace, in its own environment: parse it and generate the overview."""

import sys
import tempfile

from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator

if __name__ == "__main__":
    profile = RunProfileData.parse("worker0", None, sys.argv[1], tempfile.gettempdir())
    RunGenerator("worker0", None, profile).generate_run_profile()
