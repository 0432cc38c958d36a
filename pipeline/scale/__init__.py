"""Training beyond the memory of one process, on disk, and beyond one machine, on Dask workers."""
