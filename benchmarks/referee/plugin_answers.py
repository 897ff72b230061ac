"""What the TensorBoard plugin recommends: `python plugin_answers.py FOLDER...`, in its own environment."""

import json
import os
import sys
import tempfile
from pathlib import Path

from torch_tb_profiler.profiler.data import RunProfileData  # pyright: ignore[reportMissingImports]

# Words of its recommendations (torch_tb_profiler/profiler/data.py), and the causes that they name.
CAUSES = (
    ("high time cost on input data loading", "input"),
    ("Tensor Cores eligible operators", "precision"),
    ("high time cost on communication", "communication"),
    ("Nccl backend", "communication"),
    ("low utilization", "launching"),
    ("at the limit of device memory capacity", "memory allocation"),
)


def causes_of(texts):  # type: (list[str]) -> list[str]
    found = (cause for text in texts for words, cause in CAUSES if words.lower() in text.lower())
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        began = sum(os.times()[:4])
        trace = sorted(Path(folder).glob("*.json.gz"))[0]
        profile = RunProfileData.parse("worker0", None, str(trace), tempfile.gettempdir())
        texts = [str(text) for text in profile.recommendations]
        print(
            json.dumps({"causes": causes_of(texts), "texts": texts, "seconds": sum(os.times()[:4]) - began}), flush=True
        )
