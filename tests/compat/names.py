"""The names of Orbax that public code uses, by tier, and what storax makes of each."""

from __future__ import annotations

TIER_1 = """
CheckpointManager
CheckpointManager(checkpointers)
CheckpointManager(checkpointers=dict)
CheckpointManager(checkpointers=dict with grain)
CheckpointManager(item_names)
CheckpointManager(item_handlers)
CheckpointManager(handler_registry)
CheckpointManager(metadata)
CheckpointManager.save
CheckpointManager.save returns
CheckpointManager.restore
CheckpointManager.latest_step
CheckpointManager.all_steps
CheckpointManager.best_step
CheckpointManager.wait_until_finished
CheckpointManager.close
CheckpointManager.directory
CheckpointManager.should_save
CheckpointManager.metadata
CheckpointManager.item_metadata
CheckpointManager.metrics
CheckpointManager.reload
CheckpointManager.delete
CheckpointManager.reached_preemption
CheckpointManager.check_for_errors
CheckpointManager.is_saving_in_progress
CheckpointManagerOptions(max_to_keep)
CheckpointManagerOptions(save_interval_steps)
CheckpointManagerOptions(create)
CheckpointManagerOptions(keep_period)
CheckpointManagerOptions(best_fn)
CheckpointManagerOptions(best_mode)
CheckpointManagerOptions(keep_checkpoints_without_metrics)
CheckpointManagerOptions(enable_async_checkpointing)
CheckpointManagerOptions(async_options)
CheckpointManagerOptions(step_prefix)
CheckpointManagerOptions(step_format_fixed_length)
CheckpointManagerOptions(step_name_format)
CheckpointManagerOptions(cleanup_tmp_directories)
CheckpointManagerOptions(read_only)
CheckpointManagerOptions(save_on_steps)
CheckpointManagerOptions(should_save_fn)
CheckpointManagerOptions(file_options)
CheckpointManagerOptions(preservation_policy)
CheckpointManagerOptions(save_decision_policy)
CheckpointManagerOptions(keep_time_interval)
CheckpointManagerOptions(todelete_subdir)
CheckpointManagerOptions(**dict)
CheckpointManagerOptions (those of Orbax's own machinery)
PyTreeCheckpointer
StandardCheckpointer
Checkpointer
AsyncCheckpointer
AbstractCheckpointer
Checkpointer.save
Checkpointer.restore
PyTreeCheckpointer.save
PyTreeCheckpointer.restore
PyTreeCheckpointer.metadata
StandardCheckpointer.save
StandardCheckpointer.restore
StandardCheckpointer.metadata
StandardCheckpointer.wait_until_finished
StandardCheckpointer.close
PyTreeCheckpointHandler
StandardCheckpointHandler
JsonCheckpointHandler
CompositeCheckpointHandler
CheckpointHandler
AsyncCheckpointHandler
ArrayCheckpointHandler
DefaultCheckpointHandlerRegistry
args.Composite
args.StandardSave
args.StandardRestore
args.PyTreeSave
args.PyTreeRestore
args.JsonSave
args.JsonRestore
args.CheckpointArgs
args.register_with_handler
StandardRestore(fallback_sharding)
PyTreeRestore(restore_args)
ArrayRestoreArgs
RestoreArgs
SaveArgs
type_handlers.RestoreArgs
type_handlers.SaveArgs
type_handlers.SingleReplicaArrayRestoreArgs
type_handlers.SingleReplicaArrayHandler
type_handlers.register_type_handler
type_handlers.is_ocdbt_checkpoint
checkpoint_utils.construct_restore_args
checkpoint_utils.checkpoints_iterator
checkpoint_utils.wait_for_new_checkpoint
utils.to_shape_dtype_struct
utils.checkpoint_steps
utils.checkpoint_steps_paths
utils.TMP_DIR_SUFFIX
utils.serialize_tree
utils.deserialize_tree
utils.fully_replicated_host_local_array_to_global_array
AsyncOptions
options.FileOptions
metadata.ArrayMetadata
PLACEHOLDER
test_utils.erase_and_create_empty
Transform
transform_utils.intersect_trees
tree.to_flat_dict
tree.from_flat_dict
tree.get_param_names
future.CommitFutureAwaitingContractedSignals
step.build_step_path
step.standard_name_format
step.latest_step_metadata
step.checkpoint_steps
step.is_path_finalized
step.build_step_metadatas
step.NameFormat
step.Metadata
checkpoint_manager.METADATA_ITEM_NAME
checkpoint_manager.DEFAULT_ITEM_NAME
checkpoint_manager.CheckpointInfo
checkpoint_manager.FileOptions
checkpoint_managers.LatestN
checkpoint_managers.AnyPreservationPolicy
checkpoint_managers.EveryNSteps
checkpoint_managers.BestN
checkpoint_managers.CustomSteps
checkpoint_managers.PreservationPolicy
checkpoint_managers.PreservationContext
checkpoint_managers.FixedIntervalPolicy
checkpoint_managers.ContinuousCheckpointingPolicy
checkpoint_managers.AnySavePolicy
checkpoint_managers.PreemptionCheckpointingPolicy
checkpoint_managers.SpecificStepsPolicy
checkpoint_managers.SaveDecisionPolicy
checkpoint_managers.PolicyCheckpointInfo
subclassed CheckpointManager
subclassed PyTreeCheckpointHandler
foreign SaveArgs and RestoreArgs (flax)
foreign handlers and arguments (grain)
""".strip().splitlines()

TIER_2 = """
args.ArraySave
args.ArrayRestore
args.JaxRandomKeySave
args.JaxRandomKeyRestore
args.NumpyRandomKeySave
args.NumpyRandomKeyRestore
args.ProtoSave
args.ProtoRestore
ProtoCheckpointHandler
nested Composite
old-shape metadata()
metadata.get_step_metadata
StatefulCheckpointable
TypeHandler, ParamInfo and the rest of the leaf-handler interface
v1.save
v1.load
v1.load_pytree
v1.save_checkpointables
v1.load_checkpointables
v1.metadata
v1.pytree_metadata
v1.Context
v1.training.Checkpointer
v1.training.save_decision_policies
v1.training.preservation_policies
v1.StatefulCheckpointable
v1.options, v1.path, v1.multihost, v1.errors, CheckpointLayout, asynchronous loads
logging, aggregate_handlers, path.atomicity, Cns2StorageOptions
pathways, emergency and multi-tier checkpointing
legacy_transform_fn
""".strip().splitlines()

BETTER = {
    "CheckpointManager.save returns": "the log says once why a step is not saved",
    "CheckpointManager.reload": "does nothing: steps are always read from the directory",
    "CheckpointManager.reached_preemption": "works in one process, and the last step is saved",
    "CheckpointManager.latest_step": "counts a step once it is committed, not while it is saved",
    "CheckpointManager.close": "not needed for safety: the process waits for a running save",
    "CheckpointManagerOptions(best_fn)": "the newest step stays; a NaN ranks last and is said so",
    "CheckpointManagerOptions(file_options)": "the mode is set whatever the umask",
    "PyTreeCheckpointer": "strings, bytes, empty trees, zero-size and bare arrays, int keys",
    "StandardCheckpointer": "strings, bytes, empty trees, zero-size and bare arrays, int keys",
    "Checkpointer.save": "relative paths; force replaces checkpoints, never other files",
    "args.StandardRestore": "all differences in one error; no cast from float to int by itself",
    "args.PyTreeRestore": "the log names leaves that transforms={} left as they were",
    "checkpoint_utils.checkpoints_iterator": "the step cannot vanish while the loop's body runs",
    "checkpoint_utils.wait_for_new_checkpoint": "the step cannot vanish in its with block",
    "checkpoint_managers.PreemptionCheckpointingPolicy": "works in one process; also while it compiles",
    "old-shape metadata()": "indexing and mapping over it work again",
}

LEFT_OUT = {
    "TypeHandler, ParamInfo and the rest of the leaf-handler interface": (
        "save such objects as items of their own: save(directory), load(directory)"
    ),
    "v1.options, v1.path, v1.multihost, v1.errors, CheckpointLayout, asynchronous loads": (
        "of Orbax's own machinery; for safetensors: storax.load, storax.save_safetensors"
    ),
    "logging, aggregate_handlers, path.atomicity, Cns2StorageOptions": "of Orbax's own machinery",
    "pathways, emergency and multi-tier checkpointing": "another system",
    "legacy_transform_fn": "use Transform, or load(..., transforms=[...])",
}
