"""What 401 and 403 of the Kubernetes API mean, and what to do about each. Pure."""

import json
from pathlib import Path

from exporter.errors import Unavailable

MAX_TOLD_CHARS = 300


def unauthorized(path: str, *, token_file: Path, has_token: bool) -> Unavailable:
    """401: about who asks, not about what they may do."""
    if not has_token:
        return Unavailable(
            "unauthorized",
            f"the Kubernetes API answers {path} with 401: it was asked without a token, since {token_file} does not"
            " exist",
            remedy="mount the service account's token (automountServiceAccountToken: true), or name another file with"
            " --kubernetes.token-file",
        )
    return Unavailable(
        "unauthorized",
        f"the Kubernetes API answers {path} with 401: it does not accept the token in {token_file}",
        remedy="the token has expired or is another cluster's; no role would help. The kubelet renews a token that it"
        " mounts: use that one, or renew the file of --kubernetes.token-file",
    )


def forbidden(path: str, right: str, told: str, *, was_allowed: bool, manifest: str) -> Unavailable:
    """403, which an API server also answers to everyone until it has read its roles (measured on 1.36).

    Then it either names roles that it has not found, or refuses what it allowed before (`was_allowed`). `right` is what
    the request needed, which `manifest` gives, `told` what the API server said.
    """
    says = f"the Kubernetes API refuses {path} with 403{': ' if told else ''}{told}"
    needs = f"the service account needs {right} ({manifest})"
    if "RBAC:" in told and "not found" in told:
        return Unavailable(
            "http_status",
            says,
            remedy="an API server that has just started does not know its roles for some seconds, and is asked again;"
            f" if this stays, a role that a binding names does not exist: apply {manifest}",
        )
    if was_allowed:
        return Unavailable(
            "http_status",
            says,
            remedy="it allowed this before: an API server that has just started refuses everything for some seconds,"
            f" and is asked again; if this stays, the right was taken away: {needs}",
        )
    return Unavailable("permission", says, remedy=needs)


def resource_of(path: str) -> str:
    """What a path is about, as a rule of RBAC names it: `pods`, `replicasets (API group apps)`, or the path itself."""
    root, *parts = path.strip("/").split("/")
    group = parts.pop(0) if root == "apis" and parts else ""
    del parts[:1]  # the version
    if parts[:1] == ["namespaces"] and len(parts) > len(("namespaces", "name")):
        del parts[:2]
    if not parts:
        return path
    return f"{parts[0]} (API group {group})" if group else parts[0]


def told_by(body: bytes) -> str:
    """The message of a Status; "" where the body is none."""
    try:
        text = " ".join(str(json.loads(body)["message"]).split())
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return text if len(text) <= MAX_TOLD_CHARS else f"{text[:MAX_TOLD_CHARS]}…"
