"""`--dcgm.http-config`: which files are refused, and in which words."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.config.named_files import read_node_files
from exporter.errors import ConfigError
from tests.support.exporter import config_of

PASSWORD = "pass-Wörd with blank"


def written(folder: Path, **content: object) -> str:
    path = folder / "http.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"basic_auth": {"username": "a"}, "authorization": {"credentials": "b"}}, "cannot both be given"),
        ({"basic_auth": {"password": PASSWORD}}, "username is missing"),
        ({"basic_auth": {"username": "a", "password": PASSWORD, "password_file": "x"}}, "cannot both be given"),
        ({"basic_auth": {"username": "a", "password_file": "x"}}, "cannot be read"),
        ({"basic_auth": {"username": "a", "password_file": "two-lines"}}, "one line"),
        ({"basic_auth": {"username": "a", "passwort": PASSWORD}}, "'passwort' is not a key"),
        ({"authorization": {"type": "Bearer"}}, "credentials is missing"),
        ({"authorization": {"credentials": "of\ntwo lines"}}, "credentials must be one line"),
        ({"authorization": {"type": "Basic", "credentials": "x"}}, "use basic_auth"),
        ({"authorization": {"type": "a b", "credentials": "x"}}, "one word"),
        ({"follow_redirects": True}, "must be false"),
        ({"oauth2": {}}, "'oauth2' is not a key"),
        ({"proxy_url": "http://proxy"}, "'proxy_url' is not a key"),
        ({"http_headers": {"Host": {"values": ["x"]}}}, "is no header that can be sent"),
        ({"http_headers": {"X-A": {"values": ["x\r\ny: z"]}}}, "is no header that can be sent"),
        ({"tls_config": {"cert_file": "client.pem"}}, "cert_file and key_file go together"),
        ({"tls_config": {"ca_file": "two-lines"}}, "holds no certificate authority"),
        ({"tls_config": {"ca_file": "no-such"}}, "No such file"),
        # issue 7, line 25
        ({"tls_config": {"ca_file": "fifo"}}, "it is a FIFO, not a file"),
        ({"basic_auth": {"username": "a", "password_file": "fifo"}}, "it is a FIFO, not a file"),
        ({"tls_config": []}, "it must hold keys and values"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_used(tmp_path: Path, content: dict[str, Any], says: str) -> None:
    (tmp_path / "two-lines").write_text("a\nb\n")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError) as error:
        read_node_files(config_of(dcgm_http_config=written(tmp_path, **content)))
    assert says in str(error.value)
    assert str(error.value).startswith("--dcgm.http-config: ")
    assert PASSWORD not in str(error.value)


def test_a_user_in_the_url_and_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, authorization={"credentials": "token-123"})
    with pytest.raises(ConfigError, match="in one place"):
        read_node_files(config_of(dcgm_url="http://me:secret@127.0.0.1:9/metrics", dcgm_http_config=path))
