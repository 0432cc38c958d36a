"""Training beyond the memory of one process: rows on disk, in chunks that stream."""
