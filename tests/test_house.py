"""The house keeps its floors: who may import whom, how long a file and a function may be."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = {"spool", "kernels", "worker", "api", "migrations", "ops", "tests"}
MAY_IMPORT = {
    "spool": set(),
    "kernels": set(),
    "worker": {"spool", "kernels"},
    "api": {"spool"},
    "migrations": {"spool"},
}
FORBIDDEN_LIBRARIES = {
    "spool": {"mlx", "fastapi", "starlette", "uvicorn", "torch", "nemo"},
    "kernels": {"torch", "nemo", "sqlalchemy", "celery", "boto3"},
    "worker": {"torch", "nemo", "fastapi", "starlette", "uvicorn"},
    "api": {"mlx", "torch", "nemo"},
    "migrations": {"mlx", "torch", "nemo", "fastapi"},
}
LINES_A_FILE = 450
LINES_A_FUNCTION = 80


def sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert found
    return found


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


@pytest.mark.parametrize("floor", sorted(MAY_IMPORT))
def test_a_floor_imports_only_what_lies_below_it(floor: str) -> None:
    breaches = []
    for path in sources(floor):
        for line, module in imports(ast.parse(path.read_text())):
            top = module.split(".")[0]
            if top in OURS - MAY_IMPORT[floor] - {floor} or top in FORBIDDEN_LIBRARIES[floor]:
                breaches.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
    assert not breaches


def test_files_and_functions_stay_short() -> None:
    long = []
    for path in sources(*MAY_IMPORT, "ops"):
        text = path.read_text()
        name = path.relative_to(ROOT)
        if text.count("\n") > LINES_A_FILE:
            long.append(f"{name}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > LINES_A_FUNCTION:
                    long.append(f"{name}:{node.lineno} {node.name}: {size} lines")
    assert not long


def test_every_module_says_what_it_knows() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sources(*MAY_IMPORT, "ops")
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_migrations_are_one_chain() -> None:
    texts = [path.read_text() for path in sorted((ROOT / "migrations" / "versions").glob("[0-9]*.py"))]
    numbers = [re.findall(r'^(?:down_)?revision = "?(\w+)"?$', text, re.MULTILINE) for text in texts]
    before = ["None", *(revision for revision, _ in numbers)]
    assert numbers == [[f"{at + 1:04d}", before[at]] for at in range(len(numbers))]


def test_no_file_is_called_utils() -> None:
    assert not [
        path for path in sources(*MAY_IMPORT, "ops") if path.stem in {"utils", "util", "helpers", "misc"}
    ]


@pytest.mark.parametrize(
    "module",
    ["api.routing", "api.cli.main", "worker.engine.memory_budget", "worker.cli.main", "worker.engine.client"],
)
def test_the_processes_without_a_model_never_load_mlx(module: str) -> None:
    code = f"import sys, {module}; sys.exit('mlx' in sys.modules or 'mlx.core' in sys.modules)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, check=True, timeout=60)
