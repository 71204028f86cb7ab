"""TensorStore's OCDBT database format: reading its index, writing it, merging databases.

Pure Python, without jax and without tensorstore, so that listing a checkpoint starts fast.
"""
