"""The sections of check_gpu.py."""
