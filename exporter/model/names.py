"""The order of names for people: gpu-node-2 comes before gpu-node-10. Pure."""

import re

_NUMBERS = re.compile(r"([0-9]+)")

NameOrder = tuple[object, ...]


def as_people_count(name: str) -> NameOrder:
    """The key that sorts names: by the numbers in them, and between these by character; numbers come before words."""
    order: list[object] = []
    for place, part in enumerate(_NUMBERS.split(name)):
        is_number = place % 2
        digits = part.lstrip("0")
        # a number as its length and digits, since Python refuses to read one of thousands of digits
        order.append((len(digits), digits) if is_number else part)
    # names that differ in leading zeros alone have an order, too
    return (tuple(order), name)
