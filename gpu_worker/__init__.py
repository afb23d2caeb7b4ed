"""The GPU worker: exact tokenization of whole texts on a CUDA device.

Start with `service`, the consumer of tokenize.gpu-worker. `encoder` is the seam between the worker and what encodes;
`availability` says why no GPU is used where there is none.
"""
