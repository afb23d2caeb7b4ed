# One image for every worker: docker-compose.yml chooses by the command. docs/operations.md explains it.

FROM rust:1.95.0-slim-bookworm AS rust

# The toolchain on Python's base with a C linker: the wheel's native engine is linked here and nowhere else.
FROM python:3.11.15-bookworm AS wheel
COPY --from=rust /usr/local/rustup /usr/local/rustup
COPY --from=rust /usr/local/cargo /usr/local/cargo
ENV RUSTUP_HOME=/usr/local/rustup \
    CARGO_HOME=/usr/local/cargo \
    PATH=/usr/local/cargo/bin:$PATH
WORKDIR /src
RUN python -m pip install --no-cache-dir build==1.6.1 maturin==1.16.0
COPY . .
RUN python -m build --wheel --no-isolation --outdir /wheels

# --only-binary keeps compilers out: a dependency without a wheel fails here, by name. pip leaves the
# environment again, so that the final image can install nothing.
FROM python:3.11.15-slim-bookworm AS build
# "[gpu]" for the image of the GPU worker: cupy, and the CUDA libraries that it needs besides the host's driver.
ARG EXTRAS=""
COPY --from=wheel /wheels /wheels
RUN python -m venv /opt/toksplice \
 && /opt/toksplice/bin/python -m pip install --no-cache-dir --only-binary=:all: "$(echo /wheels/*.whl)${EXTRAS}" \
 && /opt/toksplice/bin/python -m pip uninstall --yes pip setuptools

# The same base, since the environment's python is a link to this one's.
FROM python:3.11.15-slim-bookworm
RUN python -m pip uninstall --yes pip setuptools wheel \
 && useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin toksplice \
 && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/toksplice
COPY --from=build /opt/toksplice /opt/toksplice
COPY ops/worker_probe.py /opt/toksplice/worker_probe.py
ENV PATH=/opt/toksplice/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
STOPSIGNAL SIGTERM
# Says whether the worker talks to its broker; a worker that dies is seen without it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-I", "/opt/toksplice/worker_probe.py"]
ENTRYPOINT ["toksplice"]
CMD ["--help"]
