"""The recipe's sections about teachers: which models are asked, how, and how their text is read.

Values and their checks only; the `teacher` package acts on them.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from distill import redact
from distill.extensions import PROMPTS, file_and_name, problem
from distill.recipe.backends import BACKENDS, BackendName, Capabilities
from distill.recipe.base import Dtype, LocalOrHub, Name, Section, Share, generate_key, key
from distill.recipe.sections.managed_server import Server
from distill.recipe.sections.sampling import Sampling, Until, extra_body_problem, omit_problem

author_key = partial(key, affects="signals traces")
"""A key that decides what a teacher writes, also as a judge."""
OCR_CUES = "ocr"
"""Under this key of a sample's meta is the text that OCR reads in its images."""
_ONLY_TIME = "it changes only how long the run waits; failed requests are sent again"
_ONLY_COST = "it is used for estimates only"


class Price(Section):
    """What a teacher costs, for the progress line and the estimate; any currency."""

    input: float = key(0.0, "Price of a million prompt tokens.", because=_ONLY_COST, ge=0)
    output: float = key(0.0, "Price of a million generated tokens.", because=_ONLY_COST, ge=0)
    hour: float = key(0.0, "Price of an hour of the server.", because=_ONLY_COST, ge=0)


class BatchFiles(Section):
    """How the run asks a teacher of the backend `batch`; set the limits of your API."""

    max_requests: int = key(
        50_000, "Largest number of requests in a file.", because="it says how requests are sent", ge=1
    )
    max_mb: float = key(
        190.0, "Largest size of a file in megabytes, images included.", because="it says how requests are sent", gt=0
    )
    at_once: int = key(
        4, "Largest number of batches at the same time.", because="it says how requests are sent", ge=1
    )
    poll_s: float = key(
        30.0,
        "Seconds between two requests for the state of a batch.",
        because="it says how answers are fetched",
        gt=0,
    )
    completion_window: str = key(
        "24h", "The time in which the API is to answer a batch.", because="it changes only how long is waited"
    )
    price_share: Share = key(0.5, "What a token in a batch costs, as a share of `price`.", because=_ONLY_COST)


class Teacher(Section):
    """A teacher: its model, its samples, its prompt, and how its text is read."""

    name: Name = generate_key(..., "Name of the teacher; its folder and its rows have this name.")
    model: LocalOrHub = author_key(
        ...,
        "Directory or hub name of the model.",
        compared_by="the content of a directory; for a hub name the name and the revision",
    )
    revision: str | None = author_key(
        None, "Revision (branch, tag or commit) of a hub name; default: the newest.", compared_by="the model"
    )
    backend: BackendName = key(
        "vllm",
        " ".join(f"{name}: {backend.summary}." for name, backend in BACKENDS.items()),
        because="the same request to the same model has the same trace id over HTTP and in this process; the trace "
        "records the engine",
    )
    base_url: str | Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = key(
        None,
        "One URL, or one for each replica of the same server. Without it the vllm backend starts a server.",
        because="the address of a server does not identify its model; it is recorded",
    )
    server: Server = key(Server(), "How a server is started for a `vllm` teacher without base_url.")
    api_key_env: str | None = key(
        None,
        "Name of the environment variable that holds the key; the key itself never enters a recipe.",
        because="it says where the key is",
    )
    served_model: str | None = key(
        None,
        "Name of the model in requests to the server; default: the name that the server reports.",
        because="it is only the server's name for `model`; it is recorded",
    )
    domains: tuple[str, ...] = generate_key(
        (), "Domains whose samples it answers; empty: every domain.", strict=False
    )
    difficulty: tuple[str, ...] = generate_key(
        (), "Difficulties whose samples it answers; empty: every difficulty.", strict=False
    )
    modality: Literal["any", "image", "text"] = generate_key(
        "any", "image: only samples with images. text: only samples without."
    )
    weight: float = generate_key(
        1.0, "Share of its samples that the teacher answers; 1 or more: all of them.", gt=0, usual=(0.01, 100)
    )
    fallback: bool = generate_key(
        False, "true: the teacher answers only samples that no teacher without `fallback` covers."
    )
    after: Name | None = generate_key(
        None, "A teacher that answers first; `when` selects which of its samples this teacher answers, too."
    )
    when: Literal["always", "unsure", "failed"] = generate_key(
        "always",
        "unsure: samples where less than `sure_share` of the first teacher's answers agree, or the common answer is "
        "wrong. failed: samples where none of its traces is complete. always: every sample that it answered.",
    )
    sure_share: Share = generate_key(
        0.75, "Share of equal answers from which the first teacher counts as sure.", usual=(0.5, 1)
    )
    samples: int = generate_key(
        1, "Number of traces for each question; with `until`, the largest number.", ge=1, le=1024, usual=(1, 32)
    )
    choices: int = key(
        1,
        "Traces that one request asks for (n of the API), so that a server reads prompt and image once; a divisor "
        "of samples. Only first attempts share a request, and only if none of their traces exists yet.",
        because="each trace is drawn from the same distribution; its record says which choice of its request it is",
        ge=1,
    )
    until: Until | None = key(None, "Adaptive sampling: stop before `samples` traces where fewer are enough.")
    system: str = author_key("", "System prompt; empty: none.", compared_by="the rendered prompt")
    prompt: str = key(
        "{question}",
        "Prompt with the placeholders {question}, {draft} (a trace of the teacher named by `after`), {cues} (what "
        "`cues` names), {answer} (the gold answer; needs hinted = true) and {reply} (rounds.prompt). Code that makes "
        'the prompt: "FILE.py:NAME", or an entry point of a package.',
        affects="traces",
        compared_by="the rendered prompt",
    )
    cues: str | None = generate_key(
        None,
        "The text that replaces {cues} in the prompt: ocr (the text that OCR reads in the images; needs the extra "
        "ocr), or a key of the sample's meta, such as table or caption.",
        omit_default="generate",
        min_length=1,
    )
    hinted: bool = generate_key(
        False,
        "The gold answer is shown to the teacher; its traces are marked as hinted all the way into the dataset.",
    )
    reasoning: Literal["auto", "field", "tags", "json", "none"] = generate_key(
        "auto",
        "How the rationale is separated from the answer. field: the server's own field. tags: thinking tags in the "
        "text. json: a JSON object whose member `answer` is the answer. none: all text is the answer. auto: the "
        "field, the tags or a JSON object with an answer at the end, whichever is there.",
    )
    sampling: Sampling = key(Sampling(), "Sampling parameters.")
    chat_template_kwargs: Mapping[str, Any] = author_key(
        {}, "Arguments of the chat template, such as { enable_thinking = false }."
    )
    mm_processor_kwargs: Mapping[str, Any] = key(
        {},
        "Settings of the model's image processor, sent with every request to a vLLM server.",
        affects="traces",
        omit_default="traces",
    )
    extra_body: Mapping[str, Any] = author_key(
        {},
        'Further parameters of each request to a server, as its API names them: { reasoning_effort = "high" }, '
        "response_format, structured_outputs.",
        omit_default="traces generate",
    )
    extra_headers: Mapping[str, str] = author_key(
        {},
        "Further headers of each request to a server. Secrets belong into headers_env.",
        omit_default="traces generate",
    )
    headers_env: Mapping[str, str] = key(
        {},
        'Further headers whose values are in environment variables: { "api-key" = "MY_KEY" }.',
        because="it says where keys are",
    )
    omit: tuple[str, ...] = author_key(
        (),
        'Parameters that requests leave out, because the server refuses them: ["temperature", "seed"]. The server '
        "then uses its own values.",
        omit_default="traces generate",
        strict=False,
    )
    max_completion_tokens: bool = key(
        False,
        "Send sampling.max_tokens under the name max_completion_tokens, which some hosted models demand.",
        because="it is another name of the same limit",
    )
    logprobs: int = key(
        0,
        "For every token of a trace keep the log-probabilities of this number of likeliest tokens; 0: none.",
        affects="traces",
        omit_default="traces",
        ge=0,
        le=20,
    )
    images: Literal["auto", "file", "base64"] = key(
        "auto",
        "How images reach a server. file: by path. base64: inside the request. auto: by path where the server can "
        "read it.",
        because="the same pixels reach the server",
    )
    max_in_flight: int | None = key(
        None,
        "Largest number of concurrent requests (HTTP; default: as many as keep the server busy), or of sequences "
        "in one batch (embedded; default 64).",
        because="it changes only the speed",
        ge=1,
    )
    start_in_flight: int | None = key(
        None,
        "Number of concurrent requests at the start; then the run adapts the number to the server (HTTP; default: "
        "the number that an earlier run in the same run directory reached, or 128 for a server that shows its "
        "queue and 32 for others).",
        because="it changes only the speed",
        ge=1,
    )
    timeout_s: float = key(
        600.0,
        "Longest time in seconds without data from the server: no next part of a streamed reply, or no complete "
        "reply.",
        because=_ONLY_TIME,
        gt=0,
    )
    longest_s: float = key(
        3600.0,
        "Longest time in seconds of one reply, also if the server still sends; at least timeout_s.",
        because=_ONLY_TIME,
        gt=0,
    )
    max_retries: int = key(
        5,
        "Smallest number of retries of a failing row before the row gets the outcome `error`.",
        because="it changes only the number of retries; failed requests are sent again",
        ge=0,
    )
    allow_other_model: bool = key(
        False,
        "Keep replies of another model than the requested one.",
        because="each trace names the model that wrote it",
    )
    batch: BatchFiles = key(BatchFiles(), "How the backend `batch` sends requests.")
    price: Price = key(Price(), "What the teacher costs, for the progress line and the estimate.")
    dtype: Dtype = author_key(
        "float32",
        "Data type of the weights of an embedded teacher; a server chooses its own.",
        compared_by="the data type of an embedded teacher",
    )
    trust_remote_code: bool = key(
        False,
        "Run the code that comes with the checkpoint.",
        because="it only allows or forbids to load the model; the code is part of the checkpoint",
    )

    _folder: Path = PrivateAttr(Path())
    """The recipe's, where the file of a prompt from outside is looked for."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if not self.prompt_from_outside:
            self._check_template()
        if self.when != "always" and not self.after:
            raise ValueError(f"when = {self.when!r} needs `after`, the teacher whose samples decide")
        if self.chained and self.until:
            raise ValueError("a teacher with {draft} writes `samples` traces for every draft and cannot have `until`")
        return self._as_backend_allows()

    def samples_problem(self, key_name: str, samples: int) -> str:
        """Why this teacher cannot write this number of traces per question, which `key_name` sets; empty if it
        can."""
        for name, number in self.until or ():
            if number is not None and number > samples:
                return (
                    f"until.{name} = {number} is more than {key_name} = {samples}, so it is never reached: raise "
                    f"{key_name} to {number} or more, or lower until.{name}"
                )
        return f"choices = {self.choices} must divide {key_name} = {samples}" if samples % self.choices else ""

    def _as_backend_allows(self) -> Self:
        backend = self.capabilities
        wrong = extra_body_problem(self.extra_body, of_vllm=backend.knows_sampling) or omit_problem(self.omit)
        if wrong:
            raise ValueError(wrong)
        if secret := next((name for name in self.extra_headers if redact.is_secret_header(name)), ""):
            raise ValueError(
                f'extra_headers.{secret} holds a secret; use headers_env = {{ "{secret}" = "VARIABLE" }}'
            )
        if not backend.speaks_http:
            for name in ("extra_body", "extra_headers", "headers_env", "omit", "max_completion_tokens"):
                if getattr(self, name):
                    raise ValueError(f"backend {self.backend!r} sends no HTTP requests and takes no {name}")
        if self.choices > 1 and not backend.takes_choices:
            raise ValueError(f"backend {self.backend!r} asks for one trace at a time and takes no choices")
        if wrong := self.samples_problem("samples", self.samples):
            raise ValueError(wrong)
        if any("?" in url or "#" in url for url in self.urls):
            raise ValueError(
                "base_url has a query (?...), and no request can be sent there; leave it out. Azure needs none at "
                "https://RESOURCE.openai.azure.com/openai/v1"
            )
        if backend.base_url == "required" and not self.base_url:
            raise ValueError(f"backend {self.backend!r} needs base_url")
        if backend.base_url == "refused" and self.base_url:
            where = "in this process" if backend.in_process else "without a server"
            raise ValueError(f"backend {self.backend!r} runs {where} and takes no base_url")
        # What an HTTP server takes is checked with its other settings (teacher/engines/http/chat_protocol.py).
        refused = (self.sampling.thinking_budget and not backend.keeps_thinking_budget) or (
            self.mm_processor_kwargs and not backend.takes_processor_settings
        )
        if refused and not backend.speaks_http:
            raise ValueError("sampling.thinking_budget and mm_processor_kwargs need backend 'vllm'")
        return self

    def _check_template(self) -> None:
        """Raise ValueError for a prompt whose placeholders do not fit the other keys."""
        if "{question}" not in self.prompt:
            raise ValueError('prompt must contain {question}, or name a prompt from outside: "FILE.py:NAME"')
        if "{draft}" in self.prompt and not self.after:
            raise ValueError("prompt has {draft}, so `after` must name the teacher that writes it")
        if "{answer}" in self.prompt and not self.hinted:
            raise ValueError("prompt shows the gold {answer}; set hinted = true, and the traces are marked as hinted")
        if "{cues}" in self.prompt and self.cues is None:
            raise ValueError('prompt has {cues}; set its content: cues = "ocr", or a key of the meta of the rows')
        if self.cues is not None and "{cues}" not in self.prompt:
            raise ValueError(f"cues = {self.cues!r}, but the prompt does not contain {{cues}}")
        if self.hinted and "{answer}" not in self.prompt:
            raise ValueError("hinted = true, but the prompt does not contain {answer}")

    @property
    def capabilities(self) -> Capabilities:
        """What its backend can do."""
        return BACKENDS[self.backend]

    @property
    def urls(self) -> tuple[str, ...]:
        """The servers to attach to; empty when none is named."""
        urls = (self.base_url,) if isinstance(self.base_url, str) else self.base_url or ()
        return tuple(url.rstrip("/") for url in urls)

    @property
    def direct(self) -> Self:
        """The same teacher with the backend that answers single requests at once: batch files take hours."""
        backend = self.capabilities.direct
        return self.model_copy(update={"backend": backend}) if backend else self

    def token_cost(self, prompt: float, output: float) -> float:
        """Cost of these numbers of tokens."""
        share = self.batch.price_share if self.capabilities.direct else 1.0
        return share * (self.price.input * prompt + self.price.output * output) / 1e6

    @property
    def managed(self) -> bool:
        """Whether the run itself starts, and ends, the process that answers."""
        return self.capabilities.own_process and not self.base_url

    @property
    def prompt_from_outside(self) -> bool:
        """Whether the prompt is made by code of a user's file or an installed package."""
        name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.prompt) is not None
        return file_and_name(self.prompt) is not None or (name and not problem(PROMPTS, self.prompt, ()))

    @property
    def chained(self) -> bool:
        """Whether it works on another teacher's traces."""
        return "{draft}" in self.prompt
