# Two images: `docker build --target cpu -t cot-distill:cpu .` and `docker build --target gpu -t cot-distill:gpu .`
# (docs/docker.md). Pip reads PIP_INDEX_URL and PIP_EXTRA_INDEX_URL where --build-arg gives them.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY distill distill
COPY teacher teacher
COPY filters filters
COPY student student
COPY recipes recipes
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# Everything without a card: generate against servers, filter, eval and small trainings, view.
FROM python:${PYTHON}-slim AS cpu
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /wheels /wheels
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL
# torch comes first and alone, so that nothing else asks for another build of it.
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt torch \
 && pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /wheels/*.whl)[train,store]"
RUN useradd --create-home --uid 1000 distill
USER distill
WORKDIR /work
ENTRYPOINT ["distill"]
CMD ["--help"]

# The same with kernels for training on a card, and vLLM in an environment of its own: the `vllm` on PATH. The wheels of
# torch bring CUDA; the host brings the driver. vLLM compiles kernels when it starts, which needs a C compiler.
FROM python:${PYTHON}-slim AS gpu
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL
RUN python -m venv /opt/vllm && /opt/vllm/bin/pip install --no-cache-dir 'vllm>=0.30' \
 && ln -s /opt/vllm/bin/vllm /usr/local/bin/vllm
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt torch \
 && pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /wheels/*.whl)[qlora,store,train]"
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN useradd --create-home --uid 1000 distill
USER distill
WORKDIR /work
ENTRYPOINT ["distill"]
CMD ["--help"]
