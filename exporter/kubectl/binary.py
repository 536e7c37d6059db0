"""kubectl's own binary, which reads the user's kubeconfig and asks the API server. Its errors become one line each.

Tests: tests/kubectl/test_parts.py.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.top.transport import Gone
from exporter.wording import one_line

LONGEST_SECONDS = 90.0  # for one answer; kubectl itself gives a connection 30 s
_MOST_CHARS = 300
_MOST_OBJECTS = 50_000
_REFUSED = re.compile(r"Error from server(?: \((\w+)\))?: (.*)")
_NO_LOGIN = re.compile(r"You must be logged in to the server \((.*)\)")
_NO_SERVER = re.compile(r"The connection to the server (\S+) was refused")
_RIGHT = re.compile(r'User "([^"]*)" cannot (\w+) resource "([^"]*)".*?(?:in the namespace "([^"]*)"|$)')
_DEFAULT_SERVER = "localhost:8080"  # kubectl's default, if the kubeconfig names no server
CONTEXTS = "is it the right one? kubectl config get-contexts lists them, --context and --kubeconfig choose"
NO_SERVER_NAMED = "the kubeconfig names no API server -> give --kubeconfig or --context, or set KUBECONFIG"
CREDENTIALS = "getting credentials: "  # client-go's words: the kubeconfig's command for credentials fails
_LOG_IN = "log in again, or install what the kubeconfig's users[].user.exec names"
_VIEWER = "the ClusterRole pod-gpu-metrics-viewer (deploy/kubectl/viewer.yaml)"
_LISTED_BY_VIEWER = ("pods", "services")
_REPORTER = "the ClusterRole pod-gpu-metrics-reporter (deploy/kubectl/reporter.yaml)"


class KubectlRefusal(Gone):
    """The API server, or the exporter behind its proxy, answered with another status than 200.

    `reason` is the API server's word, such as NotFound, and `message` its text.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(_worded(reason, message))
        self.reason = reason
        self.message = message

    @property
    def is_forbidden(self) -> bool:
        """Whether the user lacks a right."""
        return self.reason == "Forbidden"

    @property
    def without_remedy(self) -> str:
        """The error's text, without what to do about it."""
        return str(self).partition(" -> ")[0]


@dataclass(frozen=True, slots=True)
class Executed:
    """What a command in a container printed: its output, and its words on the standard error, on one line."""

    output: bytes
    words: str


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The binary, with the flags that choose the cluster."""

    flags: tuple[str, ...]

    def raw(self, path: str, **parameters: str) -> bytes:
        """The answer at a path of the API.

        Raises:
            KubectlRefusal: the answer has another status than 200.
            Gone: kubectl could not ask.
        """
        return self._run("get", "--raw", f"{path}?{urlencode(parameters)}" if parameters else path)

    def item(self, path: str, **parameters: str) -> AnyObject:
        """An object of the API. Raises as `raw` does."""
        try:
            content = json.loads(self.raw(path, **parameters))
        except ValueError as error:
            raise Gone(f"what answers as the API server sends no JSON -> {CONTEXTS}") from error

        return mapping(content)

    def items(self, plural: str, namespace: str, **selectors: str) -> Sequence[AnyObject]:
        """Objects of the core API, in a namespace or in all (""). Raises as `raw` does."""
        below = f"namespaces/{namespace}/" if namespace else ""
        return mappings(self.item(f"/api/v1/{below}{plural}", **selectors), "items", _MOST_OBJECTS)

    def run_in(self, namespace: str, pod: str, container: str, command: Sequence[str], seconds: float) -> Executed:
        """What a command in a container of a pod prints, however it ends. It gets `seconds` to end.

        Raises as `raw` does.
        """
        place = ("--namespace", namespace, pod, "--container", container)
        ended = self._ended(("exec", *place, "--", *command), seconds)
        words = one_line(ended.stderr.decode("utf-8", "replace"))
        if ended.returncode and not ended.stdout:
            failure = failure_of(words)
            if isinstance(failure, KubectlRefusal) and failure.is_forbidden:
                # kubectl exec asks for the pod first: whatever it may not, one role gives
                raise Gone(f"{failure.without_remedy} -> ask the cluster's admin for {_REPORTER}") from None
            raise failure

        return Executed(ended.stdout, words)

    def namespace(self) -> str:
        """The namespace of the context, which counts if a command names none."""
        return self._run("config", "view", "--minify", "-o", "jsonpath={..namespace}").decode().strip() or "default"

    def _run(self, *arguments: str) -> bytes:
        """The output of kubectl with these arguments. Raises Gone: it is not there, takes too long, or fails."""
        ended = self._ended(arguments, LONGEST_SECONDS)
        if ended.returncode == 0:
            return ended.stdout

        raise failure_of(one_line(ended.stderr.decode("utf-8", "replace")))

    def _ended(self, arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[bytes]:
        """Run kubectl with these arguments to its end. Raises Gone: it is not there, or takes too long."""
        program = shutil.which("kubectl")
        if program is None:
            raise Gone("kubectl is not in the PATH -> install it, or add its folder to the PATH")

        command = [program, *self.flags, *arguments]

        try:
            return subprocess.run(  # noqa: S603 - the user's own kubectl and flags
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise Gone(f"kubectl did not end within {seconds:g} s -> {CONTEXTS}") from error
        except OSError as error:
            raise Gone(f"{program} cannot be run: {error.strerror}") from error


def place_of(item: AnyObject) -> tuple[str, str]:
    """An object's namespace and name."""
    metadata = mapping(item, "metadata")
    return text(metadata, "namespace"), text(metadata, "name")


def failure_of(words: str) -> Gone:
    """The error that kubectl's words on its standard error mean."""
    if refused := _REFUSED.search(words):
        return KubectlRefusal(refused[1] or "", refused[2][:_MOST_CHARS])

    if no_login := _NO_LOGIN.search(words):
        return KubectlRefusal("Unauthorized", no_login[1])

    if no_server := _NO_SERVER.search(words):
        if no_server[1] == _DEFAULT_SERVER:
            return Gone(NO_SERVER_NAMED)
        return Gone(f"no API server answers at {no_server[1]} -> {CONTEXTS}")

    if CREDENTIALS in words:
        return Gone(f"kubectl gets no credentials: {words.rpartition(CREDENTIALS)[2][:_MOST_CHARS]} -> {_LOG_IN}")

    return Gone(f"kubectl: {words[-_MOST_CHARS:].removeprefix('error: ') or 'it failed without a word'} -> {CONTEXTS}")


def _worded(reason: str, message: str) -> str:
    if right := _RIGHT.search(message):
        user, verb, resource, namespace = right.groups()
        where = f"in the namespace {namespace}" if namespace else "in all namespaces"
        is_of_viewer = resource.endswith("/proxy") or (verb == "list" and resource in _LISTED_BY_VIEWER)
        ask_for = _VIEWER if is_of_viewer else "this right"
        if resource.endswith(("/exec", "/log")):
            ask_for = _REPORTER
        return f"{user} may not {verb} {resource} {where} -> ask the cluster's admin for {ask_for}"

    if reason == "Unauthorized":
        return f"the API server does not take the kubeconfig's credentials ({message}) -> log in again"

    return f"the API server says {reason or 'no'}: {message}"
