"""Puts the demo model into the wheel, which the repository keeps beside its packages."""

from setuptools import setup
from setuptools.command.build_py import build_py

MODEL = "models/demo"


class BuildWithModel(build_py):
    """As `build_py`, with the model where `spool.bundled` looks for it."""

    def run(self) -> None:
        """Build, then copy the model."""
        super().run()
        if not self.editable_mode:
            self.copy_tree(MODEL, f"{self.build_lib}/spool/bundled_files/{MODEL}")


setup(cmdclass={"build_py": BuildWithModel})
