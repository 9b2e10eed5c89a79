"""The backends of teachers: the capabilities of each and its engine class.

A new backend needs an entry here and its engine class (docs/extending.md, "A backend"). No other module compares
names of backends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

BackendName = Literal["embedded", "vllm", "vllm_offline", "openai", "batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The properties of a backend that recipe and engines use before anything is loaded."""

    summary: str
    engine: str
    """Module and class of the engine; `teacher.engines.connect` imports it when a teacher is opened."""
    base_url: Literal["required", "optional", "refused"]
    """Whether servers are attached to. A backend with "optional" starts its own process when there is no base_url."""
    speaks_http: bool
    """Requests go to an OpenAI-compatible server."""
    own_process: bool = False
    """The run starts a program for it unless base_url is given, with the options of [teachers.server]."""
    in_process: bool = False
    """The weights are loaded into this process, in `dtype`. Such a teacher is asked alone."""
    packages: tuple[str, ...] = ()
    """Python packages that this process needs."""
    may_charge: bool = False
    """Requests may cost money: no check sends one."""
    direct: BackendName | None = None
    """For a backend that does not wait for answers: the one that sends a single request to the server and waits."""
    takes_choices: bool = False
    """One request can ask for several traces."""
    knows_sampling: bool = False
    """It takes top_k, min_p and repetition_penalty."""
    keeps_thinking_budget: bool = False
    takes_processor_settings: bool = False
    """It takes mm_processor_kwargs with each request."""
    has_token_ids: bool = False
    """It returns log-probabilities with token ids."""
    scores_texts: bool = False
    """It gives the log-probabilities of a text that it did not write."""
    reads_files: bool = False
    """It takes images as file:// addresses where that is allowed, and a name for each image as the key of its cache.
    """
    shows_queue: bool = False
    """Its servers tell how many requests run and wait."""


BACKENDS: Mapping[BackendName, Capabilities] = {
    "embedded": Capabilities(
        summary="the model runs in this process",
        engine="teacher.engines.embedded.embedded_engine:EmbeddedEngine",
        base_url="refused",
        speaks_http=False,
        in_process=True,
        packages=("torch", "transformers"),
        knows_sampling=True,
        has_token_ids=True,
        scores_texts=True,
    ),
    "vllm": Capabilities(
        summary="a vLLM server, started by the run without base_url",
        engine="teacher.engines.http.http_engine:HttpEngine",
        base_url="optional",
        speaks_http=True,
        takes_choices=True,
        own_process=True,
        knows_sampling=True,
        keeps_thinking_budget=True,
        takes_processor_settings=True,
        has_token_ids=True,
        scores_texts=True,
        reads_files=True,
        shows_queue=True,
    ),
    "vllm_offline": Capabilities(
        summary="vLLM without a server, in a process that the run starts",
        engine="teacher.engines.vllm.vllm_offline:OfflineEngine",
        base_url="refused",
        speaks_http=False,
        own_process=True,
        knows_sampling=True,
        keeps_thinking_budget=True,
        takes_processor_settings=True,
        has_token_ids=True,
        reads_files=True,
    ),
    "openai": Capabilities(
        summary="any server with the OpenAI API",
        engine="teacher.engines.http.http_engine:HttpEngine",
        base_url="required",
        speaks_http=True,
        takes_choices=True,
        may_charge=True,
    ),
    "batch": Capabilities(
        summary="batch files of a server with the OpenAI API, which answers within a day for about half the price",
        engine="teacher.engines.http.batch_engine:BatchEngine",
        base_url="required",
        speaks_http=True,
        may_charge=True,
        direct="openai",
    ),
}
"""The backends by name."""
