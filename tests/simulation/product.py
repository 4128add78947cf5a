"""The product's modules, of the present tree or of an older one: two versions run in one process.

The modules of an older tree are kept beside `sys.modules`, and take the places of the present ones whenever
one of them imports something.
"""

import builtins
import importlib
import importlib.machinery
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

SEAM = "spool/clock.py"
ROOTS = frozenset({"spool", "worker", "api", "kernels", "migrations"})


class NoSuchVersion(Exception):
    """There is no such version, or it cannot be simulated."""


def find_tree(version: str, folder: Path) -> Path:
    """The tree of a version: a folder, or a commit, which is then put into `folder`. Raises NoSuchVersion."""
    tree = Path(version)
    if not tree.is_dir():
        packed = subprocess.run(["git", "archive", version], capture_output=True, check=False)
        if packed.returncode:
            said = packed.stderr.decode(errors="replace").strip()
            raise NoSuchVersion(f"{version} is neither a folder nor a commit: {said}")
        tree = folder
        tree.mkdir()
        subprocess.run(["tar", "-x", "-C", tree], input=packed.stdout, check=True)
    if not (tree / SEAM).exists():
        raise NoSuchVersion(f"{version} cannot be simulated: it has no {SEAM}.")
    return tree.resolve()


class Product:
    """The present version."""

    def module(self, name: str) -> Any:
        """One of its modules."""
        return importlib.import_module(name)

    @property
    def errors(self) -> Any:
        """`spool.errors`."""
        return self.module("spool.errors")


class OlderProduct(Product):
    """The version in this folder."""

    def __init__(self, tree: Path) -> None:
        self._finder = _Finder(tree, self)
        self._own: dict[str, ModuleType] = {}
        self._active = False

    def module(self, name: str) -> Any:
        with self._in_place():
            return importlib.import_module(name)

    def import_for_module(
        self,
        name: str,
        globals: dict[str, Any] | None = None,  # noqa: A002 - the names are those of `__import__`
        locals: dict[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        """`__import__`, as the version's own modules call it."""
        if level == 0 and name.partition(".")[0] not in ROOTS:
            return builtins.__import__(name, globals, locals, fromlist, level)
        with self._in_place():
            return builtins.__import__(name, globals, locals, fromlist, level)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Have its modules in `sys.modules`."""
        if self._active:
            yield
            return
        present = {name: module for name, module in sys.modules.items() if _is_ours(name)}
        self._replace(present, self._own)
        sys.meta_path.insert(0, self._finder)
        self._active = True
        try:
            yield
        finally:
            self._active = False
            sys.meta_path.remove(self._finder)
            self._own = {name: module for name, module in sys.modules.items() if _is_ours(name)}
            self._replace(self._own, present)

    @staticmethod
    def _replace(these: dict[str, ModuleType], those: dict[str, ModuleType]) -> None:
        for name in these:
            del sys.modules[name]
        sys.modules.update(those)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in ROOTS


class _Finder(MetaPathFinder):
    def __init__(self, tree: Path, product: OlderProduct) -> None:
        self._tree, self._product = str(tree), product

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not _is_ours(fullname):
            return None
        where = [self._tree] if path is None else path
        spec = importlib.machinery.PathFinder.find_spec(fullname, where, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(self._product, fullname, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Gives each module an `__import__` of its own, for imports within functions."""

    def __init__(self, product: OlderProduct, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._product = product

    def exec_module(self, module: ModuleType) -> None:
        own = {**vars(builtins), "__import__": self._product.import_for_module}
        vars(module)["__builtins__"] = own
        super().exec_module(module)
