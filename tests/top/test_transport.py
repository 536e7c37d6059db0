"""What `top` says of a peer that is no exporter: its words may hold a password, however long they are."""

import socket
import threading

import pytest

from exporter.config.http_file import HttpConfig
from exporter.top.transport import Gone, HttpTransport, OtherProtocol


@pytest.mark.parametrize("before", [0, 100, 270, 290])
def test_no_part_of_a_password_is_shown_wherever_a_long_text_is_cut(before: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        says = b"-ERR " + b"x" * before + b" http://user:s3cr3tpassw0rd@host/ \r\n\r\n"

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(says)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises((OtherProtocol, Gone)) as raised:
            HttpTransport(url, HttpConfig()).get("/")
        thread.join()
    assert "does not answer in HTTP" in str(raised.value)
    assert "s3cr" not in str(raised.value)
