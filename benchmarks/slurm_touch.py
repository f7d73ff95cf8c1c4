"""A Hydra program that creates a file, for ``benchmarks.slurm_peers``."""

from __future__ import annotations

from pathlib import Path

import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_path=None)
def main(config: DictConfig) -> None:
    (Path(config.marks) / str(config.number)).touch()


if __name__ == "__main__":
    main()
