"""Plants a defect into the product: a module is compiled from changed text when it is imported."""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType

from tests.simulation.mutations.defects import DEFECTS, Defect


class DoesNotApply(Exception):
    """There is no such mutation, or the product's text has changed since it was written."""


def plant(name: str) -> None:
    """Plant the defect of this name, before its module is imported. Raises DoesNotApply."""
    if name not in DEFECTS:
        raise DoesNotApply(f"There is no mutation {name!r}; there are {', '.join(DEFECTS)}.")
    defect = DEFECTS[name]
    if defect.module in sys.modules:
        raise DoesNotApply(f"The mutation {name} comes too late: {defect.module} is imported.")
    mutate(name, defect)  # says at once if it does not apply
    sys.meta_path.insert(0, _Finder(name, defect))


def mutate(name: str, defect: Defect) -> str:
    """The module's text with the defect. Raises DoesNotApply."""
    file = Path(*defect.module.split(".")).with_suffix(".py")
    text = file.read_text(encoding="utf-8")
    times = text.count(defect.before)
    if times != 1:
        raise DoesNotApply(
            f"The mutation {name} does not apply: {file} has its text {times} times, not once."
        )
    return text.replace(defect.before, defect.after)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._text, self.path, "exec")
        return code


class _Finder(MetaPathFinder):
    def __init__(self, name: str, defect: Defect) -> None:
        self._name, self._defect = name, defect

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._defect.module:
            return None
        file = str(Path(*fullname.split(".")).with_suffix(".py").resolve())
        loader = _Loader(fullname, file, mutate(self._name, self._defect))
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)
