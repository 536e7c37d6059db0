"""The order of names for people: gpu-node-2 comes before gpu-node-10. Pure."""

import re

_NUMBERS = re.compile(r"([0-9]+)")

NameOrder = tuple[object, ...]


def as_people_count(name: str) -> NameOrder:
    """The key that sorts names: their numbers by value, the text between by character. Numbers come before words."""
    order: list[object] = []
    for place, part in enumerate(_NUMBERS.split(name)):
        is_number = place % 2
        digits = part.lstrip("0")
        # a number becomes its length and digits, since Python refuses to read thousands of digits as a number
        order.append((len(digits), digits) if is_number else part)
    # the name itself orders names that differ only in leading zeros
    return (tuple(order), name)
