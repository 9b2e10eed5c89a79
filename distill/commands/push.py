"""Upload a folder, an exported student or dataset, to the Hugging Face hub."""

from pathlib import Path
from typing import Literal

from distill import redact
from distill.errors import DistillError, InputError

Kind = Literal["model", "dataset"]
SILENCE_S = 300.0
"""Longest silence of the hub: a commit of many files takes it a minute."""
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN to a token that may write"


def require_pushable(name: str) -> None:
    """Raise InputError where a push could not even begin: before hours of work, not after them."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    step = "give OWNER/NAME, such as my-name/my-student"
    if name.count("/") != 1:
        raise InputError(f"--push {name!r}: this is not OWNER/NAME; {step}")
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        reason = str(error).rstrip(".")
        raise InputError(f"--push {name!r}: no name of a repository ({reason}); {step}") from None
    token = get_token()
    if token is None:
        raise InputError(f"--push {name}: no token of the hub is here; {_LOG_IN}")
    redact.know(token)  # it may come from the file that a log-in writes


def push_folder(folder: Path, name: str, *, kind: Kind, public: bool) -> str:
    """Upload the files of `folder` as one commit to the repository OWNER/NAME; returns the commit's address.

    A new repository is private unless `public`; one that exists stays as it is. Files that it holds already are not
    sent again, so that a push that failed is repeated by the same command. Raises DistillError with the hub's reason.
    """
    from huggingface_hub import HfApi, get_session
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    get_session().timeout = SILENCE_S  # the client's own default is to wait for ever
    try:
        api.create_repo(name, repo_type=kind, private=not public, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name, repo_type=kind, folder_path=folder, commit_message="Upload by cot-distill"
        )
    except HfHubHTTPError as error:
        status = error.response.status_code
        step = (
            _LOG_IN if status in (401, 403) else "run the same command again; files that arrived are not sent twice"
        )
        raise DistillError(
            f"{name}: the hub refused the push ({status}: {error.server_message or error}); {step}"
        ) from None
    except Exception as error:  # its transport differs from version to version
        raise DistillError(
            f"{name}: the push broke off ({type(error).__name__}: {error}); {folder} is complete; look at "
            "the network and at HF_ENDPOINT, then run the same command again"
        ) from None
    return str(commit.commit_url)
