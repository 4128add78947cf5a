"""Environments of the engines that Spool is measured against, one a peer, made once in a cache folder.

Knows versions and pip; knows no engine.
"""

import subprocess
import sys
import venv
from pathlib import Path

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
WHISPER_NEEDS = ["numba==0.68.1", "scipy", "tqdm", "more-itertools", "tiktoken", "huggingface-hub"]
# Steps of pip; a step is a list of ways, the first that works is taken.
STEPS = {
    "nemo": [
        # PyTorch for the CPU alone: 200 MB instead of 3 GB. Some mirrors serve it from the plain index.
        [["torch==2.13.0", "--index-url", TORCH_INDEX], ["torch==2.13.0"]],
        [["nemo_toolkit[asr]==3.0.0"]],
    ],
    "faster-whisper": [[["faster-whisper==1.2.1"]]],
    # These two ask for PyTorch with CUDA, Triton or both, and need none of it: what they import is listed.
    "mlx-whisper": [
        [["mlx[cpu]==0.32.4", "scipy-openblas32", "lazy_loader", *WHISPER_NEEDS]],
        [["--no-deps", "mlx-whisper==0.4.3"]],
    ],
    "openai-whisper": [
        [["torch==2.13.0", "--index-url", TORCH_INDEX], ["torch==2.13.0"]],
        [WHISPER_NEEDS],
        [["--no-deps", "openai-whisper==20250625"]],
    ],
    "transformers": [
        [["torch==2.13.0", "--index-url", TORCH_INDEX], ["torch==2.13.0"]],
        [["transformers==5.24.0", "safetensors", "soundfile", "sentencepiece", "protobuf", "jinja2"]],
        # Its features are plain PyTorch; the compiled part is of another PyTorch (`peer_python` drops it).
        [["--no-deps", "torchaudio==2.11.0"]],
    ],
    "parakeet-mlx": [[["parakeet-mlx==0.7.0", "mlx[cpu]==0.32.4", "scipy-openblas32", "lazy_loader"]]],
}


def peer_python(peer: str, cache: Path) -> Path:
    """The interpreter of a peer's environment, which is made where it is missing or unfinished."""
    folder = cache / peer
    python, finished = folder / "bin" / "python", folder / "finished"
    if finished.is_file():
        return python
    print(f"making the environment of {peer} in {folder}", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True, clear=True)
    for ways in STEPS[peer]:
        _install(python, ways)
    for library in folder.glob("lib/python*/site-packages/torchaudio/lib/*.so"):
        library.unlink()
    finished.touch()
    return python


def _install(python: Path, ways: list[list[str]]) -> None:
    for number, arguments in enumerate(ways):
        pip = [str(python), "-m", "pip", "install", "--quiet", *arguments]
        if subprocess.run(pip, check=number == len(ways) - 1, stdout=sys.stderr).returncode == 0:
            return
