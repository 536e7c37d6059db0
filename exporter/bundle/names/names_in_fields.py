"""What a text is by the name of its field: of a label of a sample, or of a field of JSON.

Tests: tests/bundle/names/test_random_worlds.py.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from exporter.bundle.names.common_words import listed
from exporter.bundle.names.kept_keys import KEPT_DOMAINS, KEPT_KEYS
from exporter.bundle.names.name_table import WORD, NameTable
from exporter.bundle.names.names_in_texts import NamesInTexts
from exporter.outputs.nodes import family_name_of

# fields whose texts are names of a kind, by their names in small letters without _ and -
_NAMES = """
pod: pod podname exportedpod
namespace: namespace podnamespace exportednamespace claimnamespace draclaimnamespace
container: container containername exportedcontainer
node: node nodename hostname kubernetesnode
workload: workload workloadname
user: user username jobuser
process: command processname process
image: image imageid
claim: claimname draclaimname
pool: pool poolname drapoolname
request: request
"""
_KINDS: Final[Mapping[str, str]] = {
    name: kind for kind, _, names in (line.partition(":") for line in _NAMES.splitlines()) for name in names.split()
}
# facts of hardware and drivers, whatever words they have
_FACTS = listed(
    "gpu gpuindex minor device devfile devname dev_file modelname model gpumodel productname product brand"
    " architecture gpuiid gpuiprofile migprofile profile giid ciid pcibusid pciebusid pciebusinfo pcibdf bdf"
    " pcidev pcideviceid pcivendorid busid location address driver driverversion vbiosversion firmwareversion"
    " kernel cudaversion cudadriverversion cudacomputecapability computecapability dradevicename dradrivername"
    " cardmodel cardseries cardvendor vendor make gputype gpupartitionid gpucomputepartitiontype"
    " gpumemorypartitiontype runtimetag instancetype memorylocation tputopology hwname hwvendor hwmodel hwgputype"
    " hwfirmwareversion hwsensorlocation hwfrequencydomain hwmemorytype hwmemorylocation hwgputask clocktype"
    " clockindex statistic aggregation cominteldeviceid comintelsubdeviceid comintelsubdevicecount subdev spi fit"
    " le quantile version revision type unit xid errcode errmsg code verb kind reason result health verdict of"
    " vgpu nvlink nvswitch cpu cpucore link implementation major patchlevel entity engine severity metric field"
    " form allocator src card eventtype acceleratortype"
)
_IDS = listed(
    "acceleratorid uuid gpuuuid gpuid deviceuuid parentuuid uid poduid containerid id ids deviceid deviceids"
    " resourceid mig vdieid migdeviceid devices shareid cdidevices"
)
_SERIALS = listed("serial serialnumber hwserialnumber boardserial dcgmfidevserial dcgmfidevboardserial boardid")
_RESOURCES = listed("resource resourcename")
_SOURCES = listed("source saidby knownby sources")
_TEXTS = listed(
    "explanation message says remedy text error trouble summary help why warning note reasons healthreasons"
    " description title"
)
# what has names with slashes between them
_JOINED: Final[Mapping[str, Sequence[str]]] = {
    "claim": ("namespace", "claim"),
    "owner": ("namespace", "pod", "container"),
}
# labels of this program's own families whose values are its words
_OWN_LABELS = listed("gpu_memory gpus holds map req_of_gpu req_of_gpu_memory")
POD_LABEL = "label_"
_NOTHING = "(?!)"
_FACTS_OF_DCGM = re.compile(r"DCGM_FI_(?!.*(?:SERIAL|UUID)).*")


@lru_cache(maxsize=5_000)
def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


class NamesInFields:
    """Replaces texts by the names of their fields. A field that is not known is denied: only common words stay."""

    def __init__(self, table: NameTable, scanner: NamesInTexts) -> None:
        self._table = table
        self._scanner = scanner
        self._label_keys: set[str] = set()
        self._resources: set[str] = set()
        groups: Mapping[frozenset[str], Callable[[str], str]] = {
            _TEXTS: scanner.text,
            _SOURCES: scanner.strict,
            _RESOURCES: self.resource,
            _IDS: self.device_id,
            _SERIALS: self.serial,
            _FACTS: self.fact,
        }
        # a name in several groups is of the last
        self._by_name = {name: replace for names, replace in groups.items() for name in names}

    def label(self, name: str, value: str) -> str:
        """The value of a label of a sample."""
        if not value:
            return value
        if _FACTS_OF_DCGM.fullmatch(name):
            return self.fact(value)
        if name.startswith(POD_LABEL):
            return self.value(value)
        return self.field(name, value, self.value if name not in _OWN_LABELS else self._scanner.strict)

    def learn_family(self, name: str) -> None:
        """Learn the name of a family of samples, whose words stay."""
        if not self._table.is_settled:
            self._table.family(name)

    def fact(self, text: str) -> str:
        """A fact of hardware: a model, a version, a device's name."""
        self._table.fact(text)
        return self._scanner.text(text)

    def label_name(self, name: str) -> str:
        """The name of a label of a sample: those of pods' labels are users' words."""
        if not name.startswith(POD_LABEL):
            self.learn_family(name)
            return self._scanner.text(name)
        rest = name.removeprefix(POD_LABEL)
        return POD_LABEL + WORD.sub(lambda match: self._table.word(match[0]), rest)

    def field(self, name: str, value: str, otherwise: Callable[[str], str]) -> str:
        """A text of a field by the field's name. `otherwise` replaces texts of fields that nobody knows."""
        plain = _plain(name)
        if plain.endswith("version"):  # some look like addresses
            return self._scanner.words(value)
        if plain in _KINDS:
            return self.name(_KINDS[plain], value)
        if plain in ("instance", "host"):
            return self._scanner.host(value)
        if plain in _JOINED:
            return self._joined(_JOINED[plain], value)
        return self._by_name.get(plain, otherwise)(value)

    def _joined(self, kinds: Sequence[str], text: str) -> str:
        """Names with slashes between them. Any other text is taken for words."""
        names = text.split("/")
        if not all(names) or not 1 < len(names) <= len(kinds):
            return self._scanner.strict(text)
        return "/".join(map(self.name, kinds, names))

    def name(self, kind: str, text: str) -> str:
        """A name of a kind of names, or an id in its place. Names with a slash are names of several things."""
        if self._scanner.is_special(text):
            return self._scanner.strict(text)
        if kind == "node" and text:
            self._table.own(text)  # /metrics/nodes has a family of its name
            self._table.rewrite(family_name_of(text), lambda _: family_name_of(self._table.names.get(text, text)))
        return self._table.name(kind, text)

    def value(self, text: str) -> str:
        """A value that somebody has chosen, such as a label's."""
        return self.name("value", text)

    def serial(self, text: str) -> str:
        """A serial number, unless it says that there is none."""
        return self._table.rewrite(text, self._serial)

    def _serial(self, text: str) -> str:
        is_number = any(char.isdigit() for char in text) and set(text) - set("0 .-")
        return self._scanner.serial(text) if is_number else self._scanner.strict(text)

    def device_id(self, text: str) -> str:
        """The id of a device, a pod or a container. One with slashes has names: driver/pool/device."""
        return self._scanner.strict(text) if " " in text or "/" in text else self._scanner.opaque(text)

    def label_key(self, key: str) -> str:
        """The name of a pod's label or annotation. Its name on pages is learned, too."""
        group, slash, name = key.partition("/")
        if group == "runai-gpu-group" and slash:
            return f"{group}/{self.value(name)}"
        self._label_keys.add(key)
        if key not in KEPT_KEYS and group not in KEPT_DOMAINS:
            self._table.own(key)
        return self._scanner.wordwise(key)

    def label_names(self, text: str) -> str:
        """What --labels.names says: pod, legacy, or names that the user gives."""
        for part in text.split(","):
            self._table.own(part.partition("=")[2])
        return self._scanner.wordwise(text)

    def selector(self, text: str) -> str:
        """Labels by which a setting chooses pods, such as app=gpu,tier=a."""
        for part in text.split(","):
            self._table.select(part.partition("=")[2].strip())
        return self._scanner.strict(text)

    def label_pattern(self, pattern: str) -> str:
        """A regular expression for names of labels. The new one fits those that the old one fits.

        If no expression of the same form does, it lists their names.
        """
        new = self._scanner.wordwise(pattern)
        old_ones = {key for key in self._label_keys if _fits(pattern, key)}
        new_ones = {key for key in self._label_keys if _fits(new, self._scanner.wordwise(key))}
        if old_ones == new_ones or not self._table.is_settled:
            return new
        return "|".join(sorted(re.escape(self._scanner.wordwise(key)) for key in old_ones)) or _NOTHING

    def resource_patterns(self, pattern: str) -> Sequence[str]:
        """A glob for resources, or the resources that it fits if no glob of the same form fits them."""
        new = self._scanner.wordwise(pattern)
        pairs = self._table.rewritten
        resources = {old: pairs[old] for old in self._resources if old in pairs}
        old_ones = {old for old in resources if fnmatchcase(old, pattern)}
        new_ones = {old for old, new_one in resources.items() if fnmatchcase(new_one, new)}
        if old_ones == new_ones or not self._table.is_settled:
            return (new,)
        return sorted(resources[old] for old in old_ones) or (new,)

    def resource(self, text: str) -> str:
        """A resource, such as nvidia.com/gpu."""
        self._resources.add(text)
        return self._scanner.wordwise(text)


def _fits(pattern: str, key: str) -> bool:
    """Whether a regular expression fits a whole name; not if it is none."""
    try:
        return re.fullmatch(pattern, key) is not None
    except re.error:
        return False
