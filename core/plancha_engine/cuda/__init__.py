"""CUDA kernels of our own: their source, what instantiates them, and how they are launched.

Nothing here needs a GPU to be imported, and nothing imports CuPy before a kernel is compiled.
"""
