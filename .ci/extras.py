"""Installs each extra of the core from dist/ into a fresh environment, loads all that it registers,
and trains something tiny with it: `python .ci/extras.py [EXTRA ...]`, after `make dist`.

uv's own variables choose versions, such as UV_TORCH_BACKEND=cpu for PyTorch without CUDA."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
RESOLVED = ("vllm",)
"""Extras of several GB: only their versions are resolved."""
RECIPES = {"agent": "guess_agent", "alfworld": "quickstart"}
"""Recipe that is trained with an extra; `guess` with all others."""
SMALL = (
    *("loop.iterations=1", "loop.tasks=4", "loop.tasks_per_iteration=2", "threads=1"),
    *("loop.rollouts_per_task=2", "evaluation.episodes=0", "environment.workers=1"),
)
LOAD = """
import sys
from importlib.metadata import distributions

every = [entry for there in distributions() for entry in there.entry_points]
ours = [entry for entry in every if entry.group.startswith("rlanything.")]
loaded = [entry.load() for entry in ours if set(entry.extras) <= set(sys.argv[1:])]
print(len(loaded), "entry points")
"""


def call(*words: object, folder: Path = ROOT) -> str:
    """Returns what a command prints; exits with its output if it fails."""
    done = subprocess.run([*map(str, words)], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def check(extra: str, uv: str, folder: Path) -> str:
    """Returns what was done with an extra."""
    [core] = (ROOT / "dist").glob("rlanything-*.whl")
    wanted = f"rlanything[{extra}] @ {core.as_uri()}"
    environment = folder / "environment"
    call(uv, "venv", "--quiet", "--python", sys.executable, environment)
    install = (uv, "pip", "install", "--python", environment, "--find-links", "dist", wanted)
    if extra in RESOLVED:
        call(*install, "--dry-run")
        return "resolved"
    call(*install)
    python = environment / "bin" / "python"
    loaded = call(python, "-c", LOAD, extra, folder=folder)
    recipe = RECIPES.get(extra, "guess")
    call(python, "-m", "rlanything", "train", recipe, "run_dir=run", *SMALL, folder=folder)
    return f"{loaded}, {recipe} trained"


if __name__ == "__main__":
    program = shutil.which("uv", path=str(ROOT / ".venv-release" / "bin")) or "uv"
    for name in sys.argv[1:] or EXTRAS:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as place:
            result = check(name, program, Path(place))
        print(f"{name}: {result} in {time.monotonic() - begun:.0f} s", flush=True)
