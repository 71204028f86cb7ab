"""Orbax's policies: each asked the same of both libraries, and each through a manager."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint
import pytest
from tests.compat.side_by_side import both, shows

import storax
from storax.compat.options import manager_options

POLICIES = storax.checkpoint_managers
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@dataclass
class Told:
    step: int
    time: datetime.datetime
    metrics: Any = None
    is_locked: bool = False


def steps(*numbers: int, apart: float = 60, metrics: Any = None) -> list[Told]:
    values = metrics or {}
    return [
        Told(number, START + datetime.timedelta(seconds=apart * index), values.get(number))
        for index, number in enumerate(numbers)
    ]


MEASURED = steps(1, 2, 3, 4, metrics={1: {"x": 3.0}, 2: {"x": 1.0}, 4: {"x": 2.0}})


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda p: p.LatestN(2), steps(1, 5, 9)),
        (lambda p: p.LatestN(n=5), steps(1, 5, 9)),
        (lambda p: p.LatestN(), steps(1, 5, 9)),
        (lambda p: p.EveryNSteps(5), steps(1, 5, 9, 10)),
        (lambda p: p.EveryNSteps(interval_steps=5, max_to_keep=1), steps(1, 5, 9, 10)),
        (lambda p: p.EveryNSteps(4, exact_interval=False), steps(1, 4, 6, 9, 12)),
        (lambda p: p.EveryNSeconds(100), steps(1, 2, 3, 4, 5)),
        (lambda p: p.CustomSteps([2, 4]), steps(1, 2, 3, 4)),
        (lambda p: p.BestN(get_metric_fn=lambda m: m["x"], n=1), MEASURED),
        (lambda p: p.BestN(get_metric_fn=lambda m: m["x"], reverse=True, n=2), MEASURED),
        (
            lambda p: p.BestN(get_metric_fn=lambda m: m["x"], n=2, keep_checkpoints_without_metrics=False),
            MEASURED,
        ),
        (lambda p: p.AnyPreservationPolicy([p.LatestN(1), p.EveryNSteps(2)]), steps(1, 2, 3, 4, 5)),
        (lambda p: p.EveryNStepsClosest(interval_steps=10), steps(1, 9, 12, 19, 28, 31)),
        (lambda p: p.LatestDuration(datetime.timedelta(days=1)), steps(1, 2)),
    ],
)
@shows(
    "checkpoint_managers.EveryNSteps",
    "checkpoint_managers.BestN",
    "checkpoint_managers.CustomSteps",
    "checkpoint_managers.AnyPreservationPolicy",
    "checkpoint_managers.PreservationContext",
)
def test_what_a_preservation_policy_keeps(make: Any, told: list[Told]) -> None:
    def asked(library: Any) -> list[bool]:
        policies = library.checkpoint_managers
        context = policies.PreservationContext()
        return [bool(k) for k in make(policies).should_preserve(told, context=context)]

    assert asked(storax) == asked(orbax.checkpoint)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: p.FixedIntervalPolicy(interval=5),
        lambda p: p.FixedIntervalPolicy(2),
        lambda p: p.SpecificStepsPolicy(steps={4, 7}),
        lambda p: p.ContinuousCheckpointingPolicy(),
        lambda p: p.ContinuousCheckpointingPolicy(minimum_interval_secs=100),
        lambda p: p.InitialSavePolicy(),
        lambda p: p.AnySavePolicy([p.InitialSavePolicy(), p.FixedIntervalPolicy(7)]),
    ],
)
@shows("checkpoint_managers.ContinuousCheckpointingPolicy", "checkpoint_managers.SpecificStepsPolicy")
def test_when_a_save_policy_saves(make: Any) -> None:
    def asked(library: Any) -> list[bool]:
        policies = library.checkpoint_managers
        options = orbax.checkpoint.options.MultiprocessingOptions()
        context = policies.DecisionContext(
            is_saving_in_progress=False, reached_preemption=False, multiprocessing_options=options
        )
        policy = make(policies)
        return [
            policy.should_save(now, before, context=context)
            for now, before in (
                (steps(0)[0], []),
                (steps(3, 4)[1], steps(3)),
                (steps(3, 4, 5)[2], steps(3, 4)),
                (steps(3, 7, apart=500)[1], steps(3)),
                (steps(3, 10)[1], steps(3)),
            )
        ]

    assert asked(storax) == asked(orbax.checkpoint)


@shows(
    "checkpoint_managers.PreservationPolicy",
    "checkpoint_managers.SaveDecisionPolicy",
    "checkpoint_managers.PolicyCheckpointInfo",
)
def test_policies_of_the_user(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        class Powers(ocp.checkpoint_managers.PreservationPolicy):
            def should_preserve(self, checkpoints: Any, *, context: Any) -> Any:
                newest = checkpoints[-1].step
                return [told.step & (told.step - 1) == 0 or told.step == newest for told in checkpoints]

        class Odd(ocp.checkpoint_managers.SaveDecisionPolicy):
            def should_save(self, step: Any, previous_steps: Any, *, context: Any) -> bool:
                return step.step % 2 == 1 or not previous_steps

        policies = ocp.checkpoint_managers
        options = ocp.CheckpointManagerOptions(
            preservation_policy=Powers(),
            save_decision_policy=policies.AnySavePolicy([Odd(), policies.SpecificStepsPolicy([4])]),
        )
        mngr = ocp.CheckpointManager(directory, options=options)
        for step in range(8):
            mngr.save(step, args=ocp.args.StandardSave({"w": np.ones(1)}))
            mngr.wait_until_finished()
        return sorted(mngr.all_steps())

    both(program, tmp_path)


def test_real_policies_and_options_of_orbax_work_here(tmp_path: Path) -> None:
    real = orbax.checkpoint.checkpoint_managers
    options = orbax.checkpoint.CheckpointManagerOptions(
        preservation_policy=real.AnyPreservationPolicy([real.LatestN(1), real.EveryNSteps(3)]),
        save_decision_policy=real.AnySavePolicy([real.FixedIntervalPolicy(1)]),
        step_prefix="s",
    )
    mngr = storax.CheckpointManager(tmp_path, options=options)
    for step in range(6):
        mngr.save(step, args=storax.args.StandardSave({"w": np.ones(1)}))
    mngr.close()
    assert mngr.all_steps() == [0, 3, 5]
    assert (tmp_path / "s_5").is_dir()


@shows(
    "CheckpointManagerOptions(keep_time_interval)",
    "CheckpointManagerOptions(keep_checkpoints_without_metrics)",
)
def test_arguments_make_policies() -> None:
    options = storax.CheckpointManagerOptions(
        max_to_keep=1,
        keep_time_interval=datetime.timedelta(hours=1),
        keep_period=10,
        best_fn=lambda m: m["x"],
        best_mode="min",
        keep_checkpoints_without_metrics=False,
    )
    best, period, spaced = manager_options(options, Path("/run")).keeping().policies  # type: ignore[attr-defined]
    assert (best.mode, best.n, best.keep_unmeasured) == ("min", 1, False)
    assert period.interval_steps == 10
    assert spaced.seconds == 3600


@pytest.mark.parametrize(
    "name",
    [
        "enable_background_delete",
        "lightweight_initialize",
        "single_host_load_and_broadcast",
        "save_root_metadata",
    ],
)
@shows("CheckpointManagerOptions (those of Orbax's own machinery)")
def test_options_of_orbax_itself_are_taken(tmp_path: Path, name: str) -> None:
    options = storax.CheckpointManagerOptions(
        **{name: True}, temporary_path_class=object, num_deletion_threads=3
    )
    assert storax.CheckpointManager(tmp_path, options=options).all_steps() == []


def test_subclassed_options(tmp_path: Path) -> None:
    @dataclass
    class Mine(storax.CheckpointManagerOptions):
        todelete: str | None = None

    mngr = storax.CheckpointManager(tmp_path, options=Mine(max_to_keep=1, todelete="x"))
    for step in range(3):
        mngr.save(step, args=storax.args.StandardSave({"w": np.ones(1)}))
    mngr.close()
    assert mngr.all_steps() == [2]
