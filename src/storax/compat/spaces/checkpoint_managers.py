"""``storax.checkpoint_managers``: the manager and its policies."""

from __future__ import annotations

from storax.compat import policies
from storax.compat.manager import CheckpointManager as CheckpointManager
from storax.compat.options import CheckpointManagerOptions as CheckpointManagerOptions
from storax.compat.policies import AnyPreservationPolicy as AnyPreservationPolicy
from storax.compat.policies import AnySavePolicy as AnySavePolicy
from storax.compat.policies import BestN as BestN
from storax.compat.policies import ContinuousCheckpointingPolicy as ContinuousCheckpointingPolicy
from storax.compat.policies import CustomSteps as CustomSteps
from storax.compat.policies import DecisionContext as DecisionContext
from storax.compat.policies import EveryNSeconds as EveryNSeconds
from storax.compat.policies import EveryNSteps as EveryNSteps
from storax.compat.policies import EveryNStepsClosest as EveryNStepsClosest
from storax.compat.policies import FixedIntervalPolicy as FixedIntervalPolicy
from storax.compat.policies import InitialSavePolicy as InitialSavePolicy
from storax.compat.policies import LatestDuration as LatestDuration
from storax.compat.policies import LatestN as LatestN
from storax.compat.policies import PolicyCheckpointInfo as PolicyCheckpointInfo
from storax.compat.policies import PreemptionCheckpointingPolicy as PreemptionCheckpointingPolicy
from storax.compat.policies import PreservationContext as PreservationContext
from storax.compat.policies import PreservationPolicy as PreservationPolicy
from storax.compat.policies import PreserveAll as PreserveAll
from storax.compat.policies import SaveDecisionPolicy as SaveDecisionPolicy
from storax.compat.policies import SpecificStepsPolicy as SpecificStepsPolicy

preservation_policy = policies
save_decision_policy = policies
