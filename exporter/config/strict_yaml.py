"""YAML with every key once: PyYAML takes the last of equal keys without a word, and YAML itself forbids them.

A file of its own, since it is imported only where there is YAML to read.
"""

from collections.abc import Hashable

import yaml

from exporter.errors import DuplicateKey

_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        # before the keys of `<<` are put in: those may well be given anew
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise DuplicateKey(key, key_node.start_mark.line + 1)
                seen.add(key)
        return super().construct_mapping(node, deep)


def load_once(text: str) -> object:
    """The content of a YAML document.

    Raises:
        DuplicateKey: a mapping has a key twice.
        yaml.YAMLError, ValueError, RecursionError: it is no YAML that can be read.
    """
    content: object = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    return content
