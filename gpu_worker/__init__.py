"""The GPU worker's place. This version has no kernels: `gpu_worker.availability.probe` says why no GPU is
used."""
