"""YAML that a program wrote, or somebody who means harm."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import strict_yaml
from exporter.config.strict_yaml import DEEPEST, load_plain
from exporter.errors import DuplicateKey

PLAIN = st.recursive(
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text("ab0:-", max_size=3), inside, max_size=3),
    max_leaves=12,
)
NESTED = "nested more than|maximum nesting depth"  # ours, or the parser's of PyYAML 6.0.4, which looks ahead
BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
)


# what it does with PyYAML's own parser, and with libyaml's
@pytest.fixture(params=["SafeLoader", "CSafeLoader"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_yaml, "_PLAIN_LOADER", getattr(yaml, request.param))


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("---\na: 0\nb: [x, 'y', 1.5, true, null]\n", {"a": "0", "b": ["x", "y", "1.5", "true", "null"]}),
        ('{"a": {"b": []}, "": ""}', {"a": {"b": []}, "": ""}),
        ("x", "x"),
        ("- - a\n  - {}\n", [["a", {}]]),
    ],
)
def test_what_is_plain(text: str, content: object) -> None:
    assert load_plain(text) == content


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (BOMB, "anchor or an alias"),
        ("a: {<<: *b}", "anchor or an alias"),
        ("a: &b\n", "anchor or an alias"),
        ("a: !!python/object/apply:os.system [id]", "a tag"),
        ("!x\na: b", "a tag"),
        ("a: 1\nb: 2\na: 3\n", "the key 'a' is there twice"),
        ("b: {a: 1, a: {}}\n", "the key 'a' is there twice"),
        ("? [a]\n: b\n", "a key that is no text"),
        ("? {a: b}\n: b\n", "a key that is no text"),
        ("a: 1\n---\na: 1\n", "several documents"),
        ("", "it is empty"),
        ("# nothing\n", "it is empty"),
        ("a: b: c", "mapping values are not allowed"),
        ("[" * 100_000, NESTED),
        ("{a: " * 100_000, NESTED),
        ("- " * 10_000, NESTED),
        ("\x00", "special characters are not allowed|control characters are not allowed"),
        ("a: [1, 2", "expected"),
    ],
)
def test_what_is_refused(text: str, complaint: str) -> None:
    with pytest.raises((ValueError, DuplicateKey), match=complaint) as refused:
        load_plain(text)
    assert "\n" not in str(refused.value)


def test_the_depth_that_is_read() -> None:
    assert load_plain("[" * DEEPEST + "]" * DEEPEST)
    with pytest.raises(ValueError, match="nested"):
        load_plain("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))


@given(PLAIN)
def test_what_was_written_is_read(content: object) -> None:
    assert load_plain(yaml.safe_dump(content, default_style='"')) == content
