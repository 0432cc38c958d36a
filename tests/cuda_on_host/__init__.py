"""The kernels on the CPU: a header that gives g++ the CUDA keywords, and a builder with CuPy's calling shape."""
