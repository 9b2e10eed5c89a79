"""Names of the hub: their form, whether they are in the local cache, and, where there is network, whether they exist.

Nothing is downloaded. Without network a name is not checked, which is no error.
"""

import os
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from distill.checks.results import CheckResult, fine, not_checked, problem
from distill.machine import hub
from distill.machine.hub import TIMEOUT_S, Kind
from distill.recipe.messages import did_you_mean
from distill.recipe.recipe import Recipe


class HubNames:
    """Looks up names on the hub; after the first failure of the network it asks no more."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._no_network = ""
        self._known: dict[tuple[str, Kind, str | None], CheckResult] = {}
        self._configurations: dict[str, list[str]] = {}
        self.cached: set[str] = set()
        """Names of models whose configuration is in the local cache, or can be had."""

    def look(self, key: str, name: str, kind: Kind, revision: str | None = None) -> CheckResult:
        """The check of a name that is not a local file or folder; `key` is its recipe key."""
        query = (name, kind, revision)
        if query not in self._known:
            self._known[query] = self._misspelt(key, name, kind) or self._looked_up(key, name, kind, revision)
        result = self._known[query]  # of the key that was looked at first
        return replace(result, key=key, mend=result.mend.replace(result.key, key))

    def subset(self, key: str, name: str, subset: str) -> CheckResult:
        """Whether a data set that is on the hub has a configuration; only what its card says is known."""
        if self._no_network or name not in self._configurations:
            return not_checked(key, f"{subset!r} of {name}: the hub was not asked")
        configurations = self._configurations[name]
        if configurations and subset not in configurations:
            return problem(key, f"{name} has no {subset!r}{did_you_mean(subset, configurations)}", f"correct {key}")
        if not configurations:
            return not_checked(key, f"{subset!r}: the card of {name} lists no configurations")
        return fine(key, f"{name} has {subset!r}")

    def _misspelt(self, key: str, name: str, kind: Kind) -> CheckResult | None:
        """A problem where a name is a path that does not exist, or no name that a hub could have."""
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils._validators import validate_repo_id

        local = self._recipe.local(name)
        expected = "folder of a checkpoint" if kind == "model" else "file or folder"
        mend = f"correct {key}: a {expected} beside the recipe, or OWNER/NAME of the hub"
        try:
            beside = [item.name for item in local.parent.iterdir() if item.is_dir() or kind == "dataset"]
        except OSError:
            beside = []
        hint = did_you_mean(local.name, beside)
        if hint or ("/" in name and local.parent.is_dir()):
            return problem(key, f"{name!r}: there is no {local}{hint}", mend)
        try:
            validate_repo_id(name)
        except HFValidationError as error:
            return problem(key, f"{name!r} is neither a {expected} nor a name of the hub: {error}", mend)
        return None

    def _looked_up(self, key: str, name: str, kind: Kind, revision: str | None) -> CheckResult:
        from huggingface_hub import constants

        if _in_cache(name, kind, revision):
            self.cached.add(name)
            return fine(key, f"{name} is in the local cache of the hub")
        mend = f"correct {key}, or download {name} first"
        if constants.HF_HUB_OFFLINE and not self._no_network:
            message = f"{name} is not in the local cache, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids to ask"
            return problem(key, f"{message} the hub", mend)
        without_owner = "/" not in name
        if not self._no_network:
            result = self._asked(key, name, kind, revision)
            if result is not None:
                return result
        if without_owner:
            where = self._recipe.local(name)
            return problem(key, f"{name!r}: there is no {where}, and a name of the hub is OWNER/NAME", mend)
        return not_checked(key, f"{name} of the hub: {self._no_network}", "check the name where there is network")

    def _asked(self, key: str, name: str, kind: Kind, revision: str | None) -> CheckResult | None:
        """The result of the hub; None if it cannot be reached."""
        from huggingface_hub import HfApi, get_token
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        try:
            info: Any = HfApi().repo_info(name, repo_type=kind, revision=revision, timeout=TIMEOUT_S)
        except GatedRepoError:
            return problem(key, f"{name} is gated", f"accept its terms on the hub and set HF_TOKEN, or change {key}")
        except RevisionNotFoundError:
            return problem(key, f"{name} has no revision {revision!r}", f"correct the revision beside {key}")
        except RepositoryNotFoundError:
            return problem(
                key,
                f"{name!r} is not on the hub, or private",
                f"correct {key} (OWNER/NAME), or set HF_TOKEN for a private one",
            )
        # Any other error of the client (also of its HTTP library) means that the hub was not reached.
        except Exception as error:
            self._no_network = f"no network ({type(error).__name__})"
            hub.note_unreached(f"no answer, {type(error).__name__}")
            return None
        if getattr(info, "gated", False) and get_token() is None:
            return problem(key, f"{name} is gated", f"accept its terms on the hub and set HF_TOKEN, or change {key}")
        card = getattr(info, "card_data", None)
        listed = (card.get("configs") if card is not None else None) or []
        self._configurations[name] = [str(each.get("config_name")) for each in listed if isinstance(each, dict)]
        self.cached.add(name)
        return fine(key, f"{name} is on the hub, and will be downloaded")

    def unreached(self) -> AbstractContextManager[None]:
        """Keep the libraries from waiting for a network that is known not to be there."""
        return hub.offline(bool(self._no_network))


def _in_cache(name: str, kind: Kind, revision: str | None) -> bool:
    from huggingface_hub import constants, try_to_load_from_cache

    if kind == "model":
        return isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str)
    folder = os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME) / "datasets"
    return (Path(folder) / name.replace("/", "___")).is_dir()
