"""Put what lies at the top of a clone into the package that a wheel holds; pyproject.toml has all else."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithData(build_py):
    """Copies the templates and the constraints. What is installed as editable finds them in the clone."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            package = Path(self.build_lib, "orchestrator")
            shutil.copytree("templates", package / "templates", dirs_exist_ok=True)
            shutil.copy("constraints.txt", package)


setup(cmdclass={"build_py": WithData})
