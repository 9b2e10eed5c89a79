"""The recipe's sections about teachers: who is asked, how, what follows a trace that ended badly.

Values and their checks only; what they lead to is the `teacher` package's business.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from distill.recipe.base import Dtype, LocalOrHub, Name, Section, Share


class Sampling(Section):
    """Sampling parameters of one teacher, named as the OpenAI and vLLM APIs name them."""

    temperature: float = Field(default=0.8, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    """0: off."""
    min_p: Share = 0.0
    repetition_penalty: float = Field(default=1.0, gt=0)
    max_tokens: int = Field(default=1024, ge=1)
    stop: tuple[str, ...] = Field(default=(), strict=False)
    stop_repetition: bool = True
    """End a text that repeats itself without end (a vLLM server does it; elsewhere it runs into max_tokens)."""
    thinking_budget: int | None = Field(default=None, ge=1)
    """Tokens of thinking after which a vLLM server closes the thinking (vLLM's thinking_token_budget)."""


class Until(Section):
    """Adaptive sampling: fewer than `samples` traces where fewer are enough."""

    correct: int | None = Field(default=None, ge=1)
    """Enough when so many traces are verified against the gold answer; for questions that have one."""
    agree: int | None = Field(default=None, ge=2)
    """Enough when so many traces give the same answer; for questions without a gold answer."""
    at_once: int | None = Field(default=None, ge=1)
    """Traces asked before looking again; default: as many as could be enough."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.correct is None and self.agree is None:
            raise ValueError("until needs correct (for questions with a gold answer), agree, or both")
        return self


class Server(Section):
    """How a server is started for a `vllm` teacher without base_url."""

    command: tuple[str, ...] = Field(default=("vllm", "serve"), strict=False, min_length=1)
    """Program and first arguments, of any environment; the model, host, port and `arguments` are appended."""
    environment: Mapping[str, str] = Field(default_factory=dict)
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    """vLLM's options by name: `max-model-len = 8192`; true gives a bare flag, tables and lists become JSON."""
    extra: tuple[str, ...] = Field(default=(), strict=False)
    """Arguments passed as they are, unchecked."""
    gpus: tuple[str, ...] = Field(default=(), strict=False)
    """CUDA_VISIBLE_DEVICES of each replica, such as ["0", "1"] or ["0,1"]; default: one replica that sees all."""
    start_timeout_s: float = Field(default=1800.0, gt=0)
    restarts: int = Field(default=5, ge=0)
    """Crashes in one run after which a server is given up."""


class Price(Section):
    """What a teacher costs, for the progress line and the estimate; any currency."""

    input: float = Field(default=0.0, ge=0)
    """A million prompt tokens."""
    output: float = Field(default=0.0, ge=0)
    """A million generated tokens."""
    hour: float = Field(default=0.0, ge=0)
    """An hour of the server."""


class Teacher(Section):
    """One teacher: which model answers which samples, how it is asked and how its text is read."""

    name: Name
    model: LocalOrHub
    revision: str | None = None
    backend: Literal["embedded", "vllm", "openai"] = "vllm"
    base_url: str | Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    """One URL, or one for each replica of the same server. Without it the vllm backend starts a server."""
    server: Server = Server()
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; the key itself never enters a recipe."""
    served_model: str | None = None
    """Model name to ask the server for; default: what the server says it serves."""
    domains: tuple[str, ...] = Field(default=(), strict=False)
    """Domains it answers; empty: every domain. So for difficulty."""
    difficulty: tuple[str, ...] = Field(default=(), strict=False)
    modality: Literal["any", "image", "text"] = "any"
    """Only samples with images, or only those without."""
    weight: float = Field(default=1.0, gt=0)
    """Share of the samples it covers that it answers; 1 or more is all of them."""
    fallback: bool = False
    """Answers only the samples that no teacher without this mark covers."""
    after: Name | None = None
    """A teacher that answers first. `when` says which of its samples this one answers, too."""
    when: Literal["always", "unsure", "failed"] = "always"
    """unsure: its answers agree less than `sure_share`, or the common one is wrong; failed: none is complete."""
    sure_share: Share = 0.75
    samples: int = Field(default=1, ge=1, le=1024)
    """Traces a question; with `until`, at most."""
    until: Until | None = None
    system: str = ""
    prompt: str = "{question}"
    """{question}, {draft} (a trace of the teacher named by `after`), {answer} (the gold one; needs hinted = true)."""
    hinted: bool = False
    """The gold answer is shown to the teacher; its traces are marked as hinted all the way into the dataset."""
    reasoning: Literal["auto", "field", "tags", "none"] = "auto"
    sampling: Sampling = Sampling()
    chat_template_kwargs: Mapping[str, Any] = Field(default_factory=dict)
    mm_processor_kwargs: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of the model's image processor, sent with every request to a vLLM server."""
    logprobs: int = Field(default=0, ge=0, le=20)
    """Log-probabilities of so many likeliest tokens kept for every token of a trace; 0: none."""
    images: Literal["auto", "file", "base64"] = "auto"
    """How images reach a server: by path where it may read them (auto finds out), or inside the request."""
    max_in_flight: int | None = Field(default=None, ge=1)
    """Most requests under way at once (HTTP; default: as many as the server keeps busy), or sequences in one batch
    (embedded; default 64)."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Longest silence of a server: nothing of an answer that comes in pieces, or no answer where it comes whole."""
    longest_s: float = Field(default=3600.0, gt=0)
    """Longest time of one answer, however alive its server is; at least timeout_s."""
    max_retries: int = Field(default=5, ge=0)
    """A row that fails is tried again until it passes; so often at least before it may count as guilty."""
    allow_other_model: bool = False
    """Keep answers of another model than the one asked for; each trace says which model it was."""
    price: Price = Price()
    dtype: Dtype = "float32"
    """Weights of an embedded teacher; a server chooses its own."""
    trust_remote_code: bool = False

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if "{question}" not in self.prompt:
            raise ValueError("prompt must contain {question}")
        if "{draft}" in self.prompt and not self.after:
            raise ValueError("prompt has {draft}, so `after` must name the teacher that writes it")
        if "{answer}" in self.prompt and not self.hinted:
            raise ValueError("prompt shows the gold {answer}; say hinted = true, and the traces are marked as hinted")
        if self.hinted and "{answer}" not in self.prompt:
            raise ValueError("hinted = true, but the prompt does not contain {answer}")
        if self.when != "always" and not self.after:
            raise ValueError(f"when = {self.when!r} needs `after`, the teacher whose samples decide")
        if self.chained and self.until:
            raise ValueError("a teacher with {draft} writes `samples` traces for every draft and takes no until")
        if self.backend == "openai" and not self.base_url:
            raise ValueError("backend 'openai' needs base_url")
        if self.backend == "embedded" and self.base_url:
            raise ValueError("backend 'embedded' runs in this process and takes no base_url")
        if self.backend == "embedded" and (self.sampling.thinking_budget or self.mm_processor_kwargs):
            raise ValueError("sampling.thinking_budget and mm_processor_kwargs need backend 'vllm'")
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        """The servers to attach to; empty when none is named."""
        urls = (self.base_url,) if isinstance(self.base_url, str) else self.base_url or ()
        return tuple(url.rstrip("/") for url in urls)

    @property
    def managed(self) -> bool:
        """Whether its server is started, and stopped, by the run itself."""
        return self.backend == "vllm" and not self.base_url

    @property
    def chained(self) -> bool:
        """Whether it works on another teacher's traces."""
        return "{draft}" in self.prompt
