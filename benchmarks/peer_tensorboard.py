"""The TensorBoard plugin on one trace: parse it and generate the run's overview. Runs in its own environment."""

import sys
import tempfile

from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator

if __name__ == "__main__":
    profile = RunProfileData.parse("worker0", None, sys.argv[1], tempfile.gettempdir())
    RunGenerator("worker0", None, profile).generate_run_profile()
