"""Lets torchvision's build for GPUs be imported beside PyTorch's for CPUs.

Its compiled half does not load there, and its other half asks at once for two operators of that.
Reading images needs neither: they are declared, with nothing behind them. Run, it puts itself into
the environment that runs it if torchvision cannot be imported there; `make test-vllm` does so.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

_IMPORT = [sys.executable, "-c", "import torchvision"]
_kept: list[Any] = []


class Operators:
    """Declares them when torchvision is first looked for: PyTorch takes seconds to import."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Finds nothing: others do."""
        if name != "torchvision":
            return
        sys.meta_path.remove(self)
        import torch

        declared = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            declared.define(f"{operator}(Tensor dets, Tensor scores, float iou) -> Tensor")
        _kept.append(declared)  # declared as long as this lives


def main() -> None:
    """Installs this file where it is needed. Raises `CalledProcessError` where it does not help."""
    if subprocess.run(_IMPORT, stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return
    here, packages = Path(__file__), Path(sysconfig.get_path("purelib"))
    (packages / here.name).write_text(here.read_text(encoding="utf-8"), encoding="utf-8")
    (packages / f"{here.stem}.pth").write_text(f"import {here.stem}\n", encoding="utf-8")
    subprocess.run(_IMPORT, check=True)


if __name__ == "__main__":
    main()
elif importlib.util.find_spec("torch") is not None:
    sys.meta_path.insert(0, Operators())
