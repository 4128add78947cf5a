"""Prints how many lines of Python each family of models has, in steps of 50 (what they share: of 500), as
`docs/models.md` shows it:

.venv/bin/python -m ops.families
"""

from pathlib import Path

MODELS = Path(__file__).parents[1] / "worker" / "models"
FAMILIES = (
    "canary",
    "cohere",
    "granite",
    "hama",
    "nemo",
    "qwen3_aligner",
    "qwen3_asr",
    "sortformer",
    "wenet",
    "whisper",
)


def count_lines() -> dict[str, int]:
    """Lines of each folder of `worker/models`, and of the files beside the folders under an empty name."""
    lines: dict[str, int] = {}
    for path in sorted(MODELS.rglob("*.py")):
        folders = path.relative_to(MODELS).parts[:-1]
        name = folders[0] if folders else ""
        lines[name] = lines.get(name, 0) + path.read_text().count("\n")
    return lines


def table() -> str:
    """The families, and what they share."""
    lines = count_lines()
    shared = {name: count for name, count in lines.items() if name not in FAMILIES}
    parts = ", ".join(f"`{name}/`" for name in shared if name)
    rows = [f"| `{name}/` | {_rounded(lines[name])} |" for name in FAMILIES]
    last = f"| shared: {parts}, and files beside the folders | {_rounded(sum(shared.values()), 500)} |"
    return "\n".join(["| folder of `worker/models/` | lines of Python |", "|---|---|", *rows, last])


def _rounded(count: int, step: int = 50) -> str:
    return f"{step * round(count / step):,}"


if __name__ == "__main__":
    print(table())
