"""The files that flags name: what is said where one cannot be used."""

from pathlib import Path

import pytest

from exporter.config.files import read_structured
from exporter.errors import ConfigError


def write(folder: Path, content: str) -> str:
    path = folder / "file.yaml"
    path.write_text(content)
    return str(path)


# issue 7, line 14
@pytest.mark.parametrize(
    ("content", "key"),
    [
        ("sharing: split\nsharing: copy\n", "'sharing'"),
        ("kubelet:\n  socket: /x\n  timeout: 1s\n  socket: /y\n", "'socket'"),
        ('{"sharing": "split", "sharing": "copy"}', "'sharing'"),
        ('{"gpus": [{"uuid": "GPU-1", "uuid": "GPU-2"}]}', "'uuid'"),
        ("- {a: 1, 'a': 2}\n", "'a'"),
        ("1: a\n1: b\n", "1"),
    ],
)
def test_a_key_that_is_there_twice_is_an_error(tmp_path: Path, content: str, key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_structured(write(tmp_path, content), "--config.file")
    assert str(raised.value).startswith(f"--config.file: '{tmp_path}/file.yaml': the key {key} is there twice")
    assert ("line" in str(raised.value)) is ("{" not in content or content.startswith("-"))


def test_equal_keys_of_different_mappings_and_merged_ones_are_no_error(tmp_path: Path) -> None:
    content = "base: &base {a: 1, b: 2}\none: {<<: *base, a: 3}\ntwo: {a: 4}\nbare: {? [1] : x}\n"
    with pytest.raises(ConfigError, match="is not YAML"):
        read_structured(write(tmp_path, content), "--x")  # a list is no key
    content = content.rpartition("bare")[0]
    assert read_structured(write(tmp_path, content), "--x") == {
        "base": {"a": 1, "b": 2},
        "one": {"a": 3, "b": 2},
        "two": {"a": 4},
    }


# issue 7, line 11
def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read_structured("/nope", "--config.file")
    assert str(raised.value).startswith("--config.file: '/nope' cannot be read: No such file or directory; name one")
    (tmp_path / "latin").write_bytes(b"a: \xe4")
    with pytest.raises(ConfigError, match=r"latin' cannot be read: it is no UTF-8$"):
        read_structured(str(tmp_path / "latin"), "--x")
