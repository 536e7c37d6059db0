"""What the file system says of a kubelet's socket, and what a failed connection means by it."""

from pathlib import Path
from socket import AF_UNIX
from socket import socket as new_socket

import grpc
import grpc.aio
import pytest

from exporter.errors import Trouble
from exporter.sources.kubelet.socket import ENDED, POD_RESOURCES, PODS_API, Interface, is_mount_point, translate

NO_CONNECTION = "failed to connect to all addresses; last error: UNAVAILABLE: unix:/k.sock: "


def failure(details: str, socket: Path, of: Interface = POD_RESOURCES) -> Trouble:
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, details)
    return translate(error, socket=str(socket), of=of, versions="v1", timeout_seconds=1.0).trouble


def test_paths_of_mounts_are_unescaped(tmp_path: Path) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 2 3:4 / {str(folder).replace(' ', chr(92) + '040')}/kubelet.sock rw - tmpfs none rw\n")
    assert is_mount_point(f"{folder}/kubelet.sock", mounts)
    assert not is_mount_point(f"{folder}/other.sock", mounts)
    assert not is_mount_point("/x/y.sock", tmp_path / "nowhere")


@pytest.mark.parametrize("of", [POD_RESOURCES, PODS_API])
def test_a_socket_that_is_missing_can_be_named_by_its_own_flag(tmp_path: Path, of: Interface) -> None:
    no_folder = failure("No such file or directory", tmp_path / "pods" / "x.sock", of)
    no_socket = failure("No such file or directory", tmp_path / "x.sock", of)
    assert (no_folder.reason, no_socket.reason) == ("missing", "missing")
    assert no_folder.message == f"{tmp_path}/pods does not exist here: the socket's directory is not mounted"
    assert no_socket.message == f"{tmp_path} is there, and no socket in it"
    assert all(trouble.remedy.endswith(f"name the socket with {of.setting}") for trouble in (no_folder, no_socket))


# issue 22, line 20
@pytest.mark.parametrize("of", [POD_RESOURCES, PODS_API])
def test_a_folder_or_a_file_in_the_sockets_place_is_no_socket(tmp_path: Path, of: Interface) -> None:
    empty, folder, file = tmp_path / "kubelet.sock", tmp_path / "pod-resources", tmp_path / "file"
    empty.mkdir()
    folder.mkdir()
    file.write_text("")
    (folder / "notes").write_text("")
    with new_socket(AF_UNIX) as server:
        server.bind(str(folder / "k.sock"))
        inside, alone, plain = (failure("Connection refused", path, of) for path in (folder, empty, file))
    assert {trouble.reason for trouble in (inside, alone, plain)} == {"missing"}
    assert (inside.message, plain.message) == (f"{folder} is a folder and no socket", f"{file} is no socket")
    assert inside.remedy == f"name the socket in it: {of.setting} {folder}/k.sock"
    # what Docker makes where the file that it is to mount is not there
    assert "mount its folder" in alone.remedy
    assert plain.remedy == f"name the socket with {of.setting}"


def test_a_dead_socket_that_is_mounted_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket, mounts = tmp_path / "kubelet.sock", tmp_path / "mountinfo"
    monkeypatch.setattr(is_mount_point, "__defaults__", (mounts,))
    alone = failure("Connection refused", socket)
    mounts.write_text(f"36 35 98:0 / {socket} rw,noatime - tmpfs none rw\n")
    mounted = failure("Connection refused", socket)
    assert alone.message == f"nobody listens on {socket}"
    assert "is mounted as a file, and dead" in mounted.message
    assert mounted.remedy.endswith("instead of the file")


# issue 22, line 8
@pytest.mark.parametrize("of", [POD_RESOURCES, PODS_API])
@pytest.mark.parametrize(
    "details",
    [
        "",  # recorded: kubelet 1.36.2 ended beneath a WatchPods
        "Stream removed (Socket closed)",  # a server that was killed
        "Stream removed (recvmsg:Connection reset by peer)",
        "Stream removed (sendmsg: Broken pipe (32))",
        "Stream removed (GOAWAY received; Error code: 0; Debug Text: )",
        "Cancelling all calls",
        f"{NO_CONNECTION}Socket closed",  # it ended between the connection and its first word
        f"{NO_CONNECTION}connection attempt timed out before receiving SETTINGS frame",
    ],
)
def test_a_connection_that_breaks_is_a_kubelet_that_restarts(of: Interface, details: str) -> None:
    trouble = failure(details, Path("/k.sock"), of)
    assert (trouble.reason, trouble.remedy) == ("unreachable", ENDED)
    assert trouble.message == f"the connection to /k.sock broke: {details or 'nothing says why'}"


# issue 22, line 8
@pytest.mark.parametrize("of", [POD_RESOURCES, PODS_API])
def test_what_speaks_no_grpc_is_not_the_kubelets_socket(of: Interface) -> None:
    details = "Failed parsing HTTP/2 (Expected SETTINGS frame as the first frame, got frame type 80)"
    trouble = failure(NO_CONNECTION + details, Path("/k.sock"), of)
    assert (trouble.reason, trouble.remedy) == ("unreachable", of.is_this_it)
