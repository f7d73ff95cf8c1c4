"""The trainer `benchmarl`: BenchMARL's algorithms on its tasks, this program's and plug-ins'."""

from __future__ import annotations

from orchestrator.config.returns import COLLECTION_RETURN, EVALUATION_RETURN
from orchestrator.config.trainers.spec import TrainerSpec
from orchestrator.core.types import Run

_OURS = "the program keeps every run's files in its own folder of the results tree"

# Algorithms that explore less over a third of the frames unless told the frames, and those that never do.
_ANNEALED, _STEADY = ("iddpg", "iql", "maddpg", "qmix", "vdn"), ("ippo", "isac", "mappo", "masac")
_ANNEALING = "experiment.exploration_anneal_frames"

# The default number of frames, by the preset in `experiment`.
_USUAL_FRAMES = {**dict.fromkeys(("", "gpu", "gpu_offline", "no_log"), 3_000_000), "debug": 400}


class BenchmarlSpec(TrainerSpec):
    """A trainer with plug-ins, and lengths in iterations."""

    takes_plugins = "jobs.trainers.benchmarl.configuration.registry:register"
    tasks = "jobs.trainers.benchmarl.configuration.spelling:task_names"
    iterations = ("experiment.max_n_iters",)
    fixed_by_start = ("experiment.*_collected_frames_per_batch",)

    def bound_to_length(self, run: Run) -> str:
        algorithm = str(run.value_of("algorithm"))
        if algorithm in _ANNEALED and run.value_of(_ANNEALING) is None:
            return f"{algorithm} anneals its exploration over a third of a run's frames: set {_ANNEALING}"
        if algorithm not in (*_ANNEALED, *_STEADY):
            return f"what of the algorithm {algorithm}, of a plug-in, depends on the length is unknown"
        return ""

    def usual_frames(self, run: Run) -> int | None:
        return _USUAL_FRAMES.get(str(run.overrides.get("experiment", "")))


BENCHMARL = BenchmarlSpec(
    name="benchmarl",
    train="jobs.trainers.benchmarl.engine.experiment:train",
    check="jobs.trainers.benchmarl.configuration.checking:check",
    first_look="jobs.trainers.benchmarl.configuration.first_look:first_look",
    evaluate="jobs.trainers.benchmarl.engine.evaluating:evaluate",
    preload=("jobs.trainers.benchmarl.preload",),
    owned={
        "experiment.save_folder": _OURS,
        "experiment.restore_file": "the program resumes runs by itself",
        "experiment.restore_map_location": "the program resumes runs by itself",
        "hydra.*": "the program composes the configuration itself",
    },
    inert=(
        "experiment.loggers",
        "experiment.project_name",
        "experiment.wandb_extra_kwargs*",
        "experiment.create_json",
        "experiment.render",
        "experiment.checkpoint_interval",
        "experiment.checkpoint_at_end",
        "experiment.keep_checkpoints_num",
        "experiment.exclude_buffer_from_checkpoint",
    ),
    packages=("benchmarl", "torchrl", "tensordict", "torch", "vmas", "pettingzoo", "numpy"),
    source=("jobs.conf",),
    returns=(EVALUATION_RETURN, COLLECTION_RETURN),
    devices=(
        "experiment",
        "experiment.train_device",
        "experiment.sampling_device",
        "experiment.buffer_device",
    ),
    frames=("experiment.max_n_frames",),
    minutes="minutes",
    x_axis="iteration",
)
