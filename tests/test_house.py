"""The rules of the source tree: who may import whom, and how long a function may be.

`docs/design.md` says what the floors and rooms are for.
"""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "spool": set(),
    "kernels": set(),
    "worker": {"spool", "kernels"},
    "api": {"spool"},
    "migrations": {"spool"},
    "ops": {"spool", "kernels", "worker", "api", "migrations"},
}
PRODUCT = tuple(floor for floor in MAY_IMPORT if floor != "ops")
OURS = {*MAY_IMPORT, "tests"}
FORBIDDEN_LIBRARIES = {
    "spool": {"mlx", "fastapi", "starlette", "uvicorn", "torch", "nemo"},
    "kernels": {"torch", "nemo", "sqlalchemy", "celery", "boto3"},
    "worker": {"torch", "nemo", "fastapi", "starlette", "uvicorn"},
    "api": {"mlx", "torch", "nemo"},
    "migrations": {"mlx", "torch", "nemo", "fastapi"},
    "ops": set(),
}
# A room may import itself and the rooms of the lines below; rooms on one line do not know each other.
WORKER_FLOORS = (
    ("cli",),
    ("diagnostics", "local"),
    ("tasks",),
    ("app",),
    ("jobs",),
    ("service",),
    ("engine",),
    ("live",),
    ("witness",),
    ("decode",),
    ("diarization",),
    ("models",),
    ("segmentation",),
    ("speech",),
    ("audio",),
    ("sources",),
    ("machine",),
)
# What `spool.domain` may import of Spool: neither storage nor settings, only its own rules and plain values.
DOMAIN_MAY_IMPORT = ("spool.domain", "spool.errors", "spool.ids", "spool.wer")
LINES_A_FUNCTION = 80


def sources(*folders: str) -> list[Path]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert paths
    return paths


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST) -> Iterator[str]:
    """The modules of one statement; `from package import name` is `package.name` if that is a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            yield name if is_module(name) else node.module


@cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


@cache
def imports(path: Path) -> tuple[tuple[str, str], ...]:
    """Every import of a file, wherever in it: "file:line" and the module."""
    return tuple(
        (f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", module)
        for node in ast.walk(parsed(path))
        for module in imported(node)
    )


def runs_on_import(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when the module is imported: no function's body, none under TYPE_CHECKING."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        checking = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)
        for field in ("orelse",) if checking else ("body", "orelse", "finalbody"):
            yield from runs_on_import(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from runs_on_import(handler.body)


def within(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("floor", sorted(MAY_IMPORT))
def test_a_floor_imports_only_the_floors_below_it(floor: str) -> None:
    breaches = []
    for path in sources(floor):
        for line, module in imports(path):
            top = module.split(".")[0]
            if top in OURS - MAY_IMPORT[floor] - {floor} or top in FORBIDDEN_LIBRARIES[floor]:
                breaches.append(f"{line} imports {module}")
    assert not breaches


def test_the_rooms_of_the_worker_import_only_those_below_them() -> None:
    floor_of = {room: floor for floor, rooms in enumerate(WORKER_FLOORS) for room in rooms}
    breaches = []
    for path in sources("worker"):
        parts = module_of(path).split(".")
        if len(parts) == 1:
            continue
        for line, module in imports(path):
            top, _, room = module.partition(".")
            room = room.split(".")[0]
            if top == "worker" and room not in {"", parts[1]} and floor_of[room] <= floor_of[parts[1]]:
                breaches.append(f"{line} imports {module}")
    assert not breaches


def test_the_domain_is_pure() -> None:
    breaches = [
        f"{line} imports {module}"
        for path in sources("spool/domain")
        for line, module in imports(path)
        if (within(module, ["spool"]) and module != "spool" and not within(module, DOMAIN_MAY_IMPORT))
        or within(module, ["sqlalchemy", "celery", "redis", "boto3", "httpx", "structlog"])
    ]
    assert not breaches


def test_routes_never_import_one_another() -> None:
    breaches = [
        f"{line} imports {module}"
        for path in sources("api/routes")
        for line, module in imports(path)
        if within(module, ["api.routes"]) and module != "api.routes"
    ]
    assert not breaches


def test_only_commands_import_the_command_line() -> None:
    # The demo is a command too: it lives beside the stack that it runs, and prints the command line's tables.
    commands = ("api.cli", "api.local.demo", "worker.cli")
    breaches = [
        f"{line} imports {module}"
        for path in sources("api", "worker")
        for line, module in imports(path)
        if within(module, commands) and not within(module_of(path), commands) and path.stem != "__main__"
    ]
    assert not breaches


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = {module_of(path): path for path in sources(*MAY_IMPORT)}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        needs = {module for node in runs_on_import(parsed(path).body) for module in imported(node)}
        graph[name] = (needs & set(modules)) - {name}
    graphlib.TopologicalSorter(graph).prepare()


def test_functions_stay_short() -> None:
    long = []
    for path in sources(*MAY_IMPORT):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # Without the signature: a command's declares its options with their help.
                size = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
                if size > LINES_A_FUNCTION:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {size} lines")
    assert not long


def test_every_module_has_a_docstring() -> None:
    docstrings = {
        str(path.relative_to(ROOT)): ast.get_docstring(parsed(path)) for path in sources(*MAY_IMPORT)
    }
    assert [name for name, text in docstrings.items() if not text or text.startswith("TODO")] == []


def test_migrations_are_one_chain() -> None:
    texts = [path.read_text() for path in sorted((ROOT / "migrations" / "versions").glob("[0-9]*.py"))]
    numbers = [re.findall(r'^(?:down_)?revision = "?(\w+)"?$', text, re.MULTILINE) for text in texts]
    before = ["None", *(revision for revision, _ in numbers)]
    assert numbers == [[f"{at + 1:04d}", before[at]] for at in range(len(numbers))]


def test_no_file_is_called_utils() -> None:
    assert not [path for path in sources(*MAY_IMPORT) if path.stem in {"utils", "util", "helpers", "misc"}]


@pytest.mark.integration
@pytest.mark.parametrize(
    "module",
    ["api.routing", "api.cli.main", "worker.engine.memory_budget", "worker.cli.main", "worker.engine.client"],
)
def test_the_processes_without_a_model_never_load_mlx(module: str) -> None:
    code = f"import sys, {module}; sys.exit('mlx' in sys.modules or 'mlx.core' in sys.modules)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, check=True, timeout=60)
