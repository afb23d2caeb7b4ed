"""CUDA kernels on the CPU, for tests: the sources of gpu_worker/kernels compiled by g++ and run thread by thread."""
