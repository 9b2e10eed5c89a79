"""The sections `[engine]` and `[store]` of a recipe: how machines share a run in an object store, and how they reach
the store."""

from collections.abc import Mapping
from typing import Any, Literal

from distill.recipe.base import Section, key

_ONLY_COST = "it is used for estimates only"


class Placement(Section):
    """Where the agents of a run in a store work, how the run is divided into units, and how often work is saved."""

    kind: Literal["local", "slurm", "ray"] = key(
        "local",
        "Where agents work: in this process, in an array of Slurm jobs, or on a Ray cluster. --engine overrides it.",
        because="agents do the same work everywhere",
    )
    agents: int = key(
        1,
        "Jobs of the Slurm array, or tasks of the Ray cluster, which share the run.",
        because="every number of agents gives the same traces",
        ge=1,
    )
    nodes: int | None = key(
        None,
        "Machines that train one student together, on a Ray cluster or in a Slurm job; --nodes overrides it. "
        "Not set: train works on the machine of the command.",
        because="every number of machines trains on the same rows in the same order",
        ge=1,
    )
    slurm: Mapping[str, str] = key(
        {},
        "Options of sbatch for each job, such as time, partition or gres.",
        because="agents do the same work everywhere",
    )
    ray: Mapping[str, float] = key(
        {},
        "Resources of a Ray cluster that an agent, or a machine that trains, needs: num_cpus (1), num_gpus, memory "
        "in bytes, or a custom resource. A machine that trains has a process for each GPU.",
        because="agents do the same work everywhere",
    )
    restarts: int = key(
        100,
        "Number of lost agents on a Ray cluster that are started again, in the whole run; for a training, number "
        "of restarts after a loss.",
        because="agents do the same work everywhere",
        ge=0,
    )

    scratch: str | None = key(
        None,
        "Folder for temporary files; default: a folder in the system's temporary folder.",
        because="it holds only temporary files",
    )
    seal_s: float = key(
        30.0,
        "Seconds between two saves of an agent's work; at most this much work is lost with a machine.",
        because="it changes only what is done again after a loss",
        gt=0,
    )
    lease_s: float = key(
        60.0,
        "Seconds without a heartbeat after which other agents take over the work of an agent.",
        because="it changes only what is done again after a loss",
        gt=0,
    )
    retries: int = key(
        5,
        "How often agents try a unit again after an agent was lost or failed at it; then they set the unit aside.",
        because="a unit that is set aside is not finished",
        ge=0,
    )
    unit_rows: int = key(
        10_000,
        "Approximate number of samples of a unit. It is fixed when the run begins.",
        because="every division into units gives the same traces",
        ge=1,
    )


class StorePrice(Section):
    """What a store costs, for `distill plan --engine`; any currency."""

    writes: float = key(0.0, "Price of 1,000 requests that write or list.", because=_ONLY_COST, ge=0)
    reads: float = key(0.0, "Price of 1,000 requests that read.", because=_ONLY_COST, ge=0)
    gb_month: float = key(0.0, "Price of a gigabyte for a month.", because=_ONLY_COST, ge=0)


class StoreSettings(Section):
    """The store of a run whose --run is an address. Credentials come from the environment."""

    endpoint: str | None = key(
        None, "URL of an S3-compatible store that is not AWS.", because="every store holds the same files"
    )
    region: str | None = key(None, "Region of the bucket.", because="every store holds the same files")
    allow_http: bool = key(
        False, "Whether the endpoint may be reached without encryption.", because="every store holds the same files"
    )
    addressing: Literal["path", "virtual"] = key(
        "path",
        "Whether the bucket is in the path or in the host name of requests.",
        because="every store holds the same files",
    )

    price: StorePrice = key(StorePrice(), "What the store costs, for the plan of a run.")

    def client_options(self) -> dict[str, Any]:
        """These settings in the words of obstore; what is not set comes from the environment."""
        named: dict[str, Any] = {"endpoint": self.endpoint, "region": self.region}
        named["allow_http"] = self.allow_http or None
        named["virtual_hosted_style_request"] = True if self.addressing == "virtual" else None
        return {name: value for name, value in named.items() if value is not None}
