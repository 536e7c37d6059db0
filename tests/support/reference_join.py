"""The join once more, as plainly as possible: the oracle that the fast one is held against.

It shares no code with exporter/exposition but the names of the reasons: lines are read character by character, nothing
is cached, every label is written anew. Only attribution, which has tests of its own, is asked for the added labels.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import NamedTuple

from exporter.dcgm.table import Additive
from exporter.dividing.decimals import is_amount
from exporter.model.pages import Reading, Row, Rows, Subject
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789"
Labels = list[tuple[str, str]]
WIDE = Context(prec=3_000)


class Bad(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Sample:
    def __init__(self, name: str, labels: Labels, series: str, rest: str, value: str, *, exemplar: bool) -> None:
        self.name, self.labels, self.series, self.rest, self.exemplar = name, labels, series, rest, exemplar
        self.value = value
        self.label_of = dict(labels)


def reference_join(
    bodies: Sequence[bytes], policy: LabelPolicy, attribution: Attribution, wanted: Callable[[str], bool]
) -> tuple[bytes, Counter[str]]:
    """The page that goes out, and the rejected lines by reason."""
    rejected: Counter[str] = Counter()
    types: dict[str, str] = {}
    helps: dict[str, str] = {}
    sampled: set[str] = set()
    known: set[str] = set()
    kept: list[str | Sample] = []

    def family_of(name: str) -> str:
        if name not in known:
            for suffix, kinds in (
                ("_sum", "summary histogram"),
                ("_count", "summary histogram"),
                ("_bucket", "histogram"),
            ):
                base = name.removesuffix(suffix)
                if base != name and base in known and types.get(base, "none") in kinds.split():
                    return base
        known.add(name)
        return name

    pages: list[int] = []  # which body each of the samples that are kept is from

    for page, line in [(page, line) for page, body in enumerate(bodies) for line in lines_of(body)]:
        try:
            if len(line) > 65_536:
                raise Bad("syntax")
            text = decode(line.rstrip(b"\r"))
            if text.strip(" \t") == "":
                kept.append(text)
            elif text.lstrip(" \t").startswith("#"):
                metadata = read_comment(text)
                if metadata is None:
                    kept.append(text)
                    continue
                keyword, name, words, out = metadata
                if name.startswith("pod_gpu_exporter_"):
                    raise Bad("reserved_name")
                family = family_of(name)
                said = types if keyword == "TYPE" else helps
                if family in said or family in sampled:
                    if said.get(family) != words:
                        raise Bad("late_metadata")
                    continue
                said[family] = words
                if wanted(family):
                    kept.append(out)
            else:
                sample = read_sample(text.strip(" \t"))
                if sample.exemplar:
                    rejected["exemplar"] += 1
                if sample.name.startswith("pod_gpu_exporter_"):
                    raise Bad("reserved_name")
                family = family_of(sample.name)
                bound = {"histogram": "le", "summary": "quantile"}.get(types.get(family, ""))
                if bound in sample.label_of and not is_number(sample.label_of[bound or ""]):
                    raise Bad("syntax")
                sampled.add(family)
                if wanted(family):
                    kept.append(sample)
                    pages.append(page)
        except Bad as bad:
            rejected[bad.reason] += 1

    samples = [entry for entry in kept if isinstance(entry, Sample)]
    subjects = [(sample.name.encode(), subject_of(sample, policy)) for sample in samples]
    added = iter(
        [
            rows
            for page in range(len(bodies))
            for rows in attribution([subject for subject, of in zip(subjects, pages, strict=True) if of == page])
        ]
    )
    for _ in attribution.share([reading_of(sample, policy) for sample in samples]):
        pass
    parts = parts_of_instances(samples, policy)
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    out_lines: list[str] = []
    for entry in kept:
        if isinstance(entry, str):
            out_lines.append(entry)
            continue
        own = [(name, value) for name, value in entry.labels if not policy.is_owner_label(name)]
        rows = next(added)
        if not policy.names_owners:
            rows = Rows((Row(labels=tuple((name, "") for name in policy.names) if policy.idle_labels else ()),))
        values: list[str] = []
        for number, row in enumerate(rows.each):
            labels = own + [(name, escape(value)) for name, value in row.labels]
            identity = (entry.name, frozenset(label for label in labels if label[1]))
            if identity in seen:
                if policy.names_owners or not subject_of(entry, policy).came_with:
                    rejected["duplicate"] += 1
                continue
            seen.add(identity)
            if rows.values and not values:
                value = parts.get(id(entry), entry.value)
                series, _ = reading_of(entry, policy)
                values = [text.decode() for text in rows.values(series.identity, value.encode())]
            rest = entry.rest.replace(entry.value, values[number], 1) if values else entry.rest
            out_lines.append(write_series(entry, own, labels) + rest)
    return "".join(f"{line}\n" for line in out_lines).encode(), rejected


class SeriesOf(NamedTuple):
    name: bytes
    subject: Subject
    identity: bytes
    own_labels: tuple[str, ...] = ()  # nothing that a join does depends on them


def reading_of(sample: Sample, policy: LabelPolicy) -> Reading:
    own = sorted(label for label in sample.labels if label[1] and not policy.is_owner_label(label[0]))
    identity = repr((sample.name, own)).encode()
    return SeriesOf(sample.name.encode(), subject_of(sample, policy), identity), sample.value.encode()


def parts_of_instances(samples: Sequence[Sample], policy: LabelPolicy) -> dict[int, str]:
    """What MIG instances have of the gauges that their rows repeat of a GPU, by the samples' own ids."""
    rows: dict[tuple[str, str], list[tuple[Sample, Subject]]] = {}
    active: dict[tuple[str, str], Decimal] = {}
    for sample in samples if policy.sharing == "split" else ():
        subject = subject_of(sample, policy)
        gpu = subject.uuid or subject.device or subject.index
        if not gpu or not subject.instance or not is_amount(sample.value.encode()):
            continue
        if sample.name in ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"):
            active.setdefault((gpu, subject.instance), Decimal(sample.value))
        is_gauge = policy.additive.get(sample.name) is Additive.GAUGE
        if is_gauge and any(word in sample.name.upper() for word in ("POWER", "PCIE", "NVLINK")):
            rows.setdefault((sample.name, gpu), []).append((sample, subject))
    parts: dict[int, str] = {}
    for (_, gpu), repeated in rows.items():
        numbers = [float(sample.value) for sample, _ in repeated]
        slices: dict[str, int] = {}
        for _, subject in repeated:
            said = re.match(r"(?:[0-9]+c\.)?([0-9]+)g\.", subject.profile)
            slices.setdefault(subject.instance, max(1, int(said[1])) if said else 1)
        largest = max(map(abs, numbers))
        if len(slices) == 1 or largest - min(numbers) > largest * 0.01:
            continue
        millionths = {of: round(min(max(active.get((gpu, of), 0), 0), 1) * 10**6) for of in slices}
        weights = {of: number * millionths[of] for of, number in slices.items()}
        if not any(weights.values()):
            weights = slices
        first = Decimal(repeated[0][0].value)
        unit = Decimal(1).scaleb(min(0, int(first.as_tuple().exponent)), WIDE)
        steps = int(WIDE.divide(abs(first), unit))
        shares = {of: steps * weight // sum(weights.values()) for of, weight in weights.items()}
        left = steps - sum(shares.values())
        for of in [of for of in shares if weights[of]][:left]:
            shares[of] += 1
        for sample, subject in repeated:
            part = WIDE.multiply(Decimal(shares[subject.instance]), unit.copy_sign(first))
            parts[id(sample)] = f"{part:f}" if part else f"{abs(part):f}"
    return parts


def lines_of(body: bytes) -> list[bytes]:
    lines = body.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def decode(line: bytes) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise Bad("syntax") from None
    if "\0" in text:
        raise Bad("syntax")
    return text


def read_comment(text: str) -> tuple[str, str, str, str] | None:
    """Keyword, name, text and outgoing line of metadata; None for any other comment."""
    words = text.lstrip(" \t")[1:].lstrip(" \t")
    for keyword in ("HELP", "TYPE"):
        rest = words.removeprefix(keyword)
        if rest == words or rest.lstrip(" \t") in (rest, ""):
            continue
        rest = rest.lstrip(" \t")
        end = next((i for i, char in enumerate(rest) if char in " \t"), len(rest))
        name, value = rest[:end], rest[end:].lstrip(" \t")
        if not is_name(name, ":"):
            raise Bad("syntax")
        if keyword == "TYPE":
            value = value.strip(" \t").lower()
            if value not in ("counter", "gauge", "histogram", "summary", "untyped"):
                raise Bad("syntax")
            return keyword, name, value, f"# TYPE {name} {value}"
        if "\\" in value.replace("\\\\", "").replace("\\n", ""):
            raise Bad("syntax")
        return keyword, name, value, text if text.startswith("# HELP ") else f"# HELP {name} {value}"
    if text.lstrip(" \t#").split()[:1] in (["HELP"], ["TYPE"]):
        raise Bad("syntax")
    return None


def read_sample(text: str) -> Sample:
    end = 0
    while end < len(text) and text[end] in LETTERS + DIGITS + "_:":
        end += 1
    name = text[:end]
    after_name = text[end:].lstrip(" \t")
    if not is_name(name, ":") and not (name == "" and after_name.startswith("{")):
        raise Bad("syntax")
    if after_name.startswith("{"):
        labels, after = read_labels(after_name[1:])
    else:
        labels, after = [], text[end:]
        if after.lstrip(" \t") == after:
            raise Bad("syntax")
    if name == "":
        raise Bad("syntax")
    names = [label for label, _ in labels]
    if len(set(names)) < len(names):
        raise Bad("duplicate_label")
    if any(label.startswith("__") and label != "__name__" for label in names):
        raise Bad("reserved_name")
    series = text[: len(text) - len(after)]
    words = after.replace("\t", " ").split(" ")
    words = [word for word in words if word]
    if not words or "__name__" in names:
        raise Bad("syntax")
    if not is_number(words[0]):
        raise Bad("value")
    exemplar = False
    upto = 1
    if len(words) > 1 and not words[1].startswith("#"):
        if not all(char in DIGITS for char in words[1]) or int(words[1]) >= 2**63:
            raise Bad("syntax")
        upto = 2
    if len(words) > upto:
        if not words[upto].startswith("#"):
            raise Bad("syntax")
        exemplar = True
        after = after[: position_of_word(after, upto)].rstrip(" \t")
    if len(names) > 128:
        raise Bad("syntax")
    return Sample(name, labels, series, after, words[0], exemplar=exemplar)


def position_of_word(text: str, number: int) -> int:
    """Where the word of that number (from 0) begins."""
    seen = -1
    for i, char in enumerate(text):
        if char not in " \t" and (i == 0 or text[i - 1] in " \t"):
            seen += 1
            if seen == number:
                return i
    raise AssertionError(text)


def read_labels(text: str) -> tuple[Labels, str]:
    """What follows an opening brace: the labels with their escaped values, and the text after the closing brace."""
    labels: Labels = []
    text = text.lstrip(" \t")
    while not text.startswith("}"):
        if text.startswith('"') and quoted_end(text, any_escape=True) is not None:
            raise Bad("utf8_name")
        name, equals, rest = text.partition("=")
        name, rest = name.rstrip(" \t"), rest.lstrip(" \t")
        if not equals or not is_name(name) or not rest.startswith('"'):
            raise Bad("syntax")
        end = quoted_end(rest, any_escape=False)
        if end is None:
            # a strange escape is no reason to overlook a quoted name further on
            end = quoted_end(rest, any_escape=True)
            if end is None:
                raise Bad("syntax")
            labels.append(("", ""))
        else:
            labels.append((name, rest[1:end]))
        text = rest[end + 1 :].lstrip(" \t")
        if text.startswith(","):
            text = text[1:].lstrip(" \t")
        elif not text.startswith("}"):
            raise Bad("syntax")
    if ("", "") in labels:
        raise Bad("syntax")
    return labels, text[1:]


def quoted_end(text: str, *, any_escape: bool) -> int | None:
    """The position of the quote that closes the text which text[0] opens."""
    i = 1
    while i < len(text):
        if text[i] == "\\":
            if not any_escape and text[i + 1 : i + 2] not in ("\\", '"', "n"):
                return None
            i += 1
        elif text[i] == '"':
            return i
        i += 1
    return None


def is_name(text: str, also: str = "") -> bool:
    return text != "" and text[0] not in DIGITS and all(char in LETTERS + DIGITS + "_" + also for char in text)


def is_number(text: str) -> bool:
    words = text.lower().lstrip("+-")
    if len(text) - len(words) > 1:
        return False
    if words in ("inf", "infinity"):
        return True
    if words == "nan":
        return text[0] in "nN"
    if any(char not in DIGITS + "+-.eE" for char in text):
        return False
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def unescape(value: str) -> str:
    out = ""
    i = 0
    while i < len(value):
        if value[i] == "\\":
            i += 1
            out += "\n" if value[i] == "n" else value[i]
        else:
            out += value[i]
        i += 1
    return out


def escape(value: str) -> str:
    return "".join({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\0": "\ufffd"}.get(char, char) for char in value)


def subject_of(sample: Sample, policy: LabelPolicy) -> Subject:
    return policy.read_subject({name: unescape(value) for name, value in sample.labels})


def write_series(sample: Sample, own: Labels, labels: Labels) -> str:
    """As it came where nothing changed; with its own text before the added labels where none was taken away."""
    added = ",".join(f'{name}="{value}"' for name, value in labels[len(own) :])
    if len(own) < len(sample.labels):
        text = ",".join(f'{name}="{value}"' for name, value in own)
        inside = ",".join(part for part in (text, added) if part)
        return sample.name + (f"{{{inside}}}" if inside else "")
    if not added:
        return sample.series
    before = sample.series[:-1].rstrip(" \t,") if sample.series.endswith("}") else sample.series + "{"
    return before + ("," if own else "") + added + "}"
