"""One array <-> chunks: zarr metadata, copying to host memory, writing, reading, placing on devices."""
