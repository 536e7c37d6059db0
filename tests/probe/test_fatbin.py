"""Fatbins: the images that nvcc put into them, and what no compiler writes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Malformed
from exporter.probe.elf import in_memory
from exporter.probe.fatbin import Compression, Image, read_images
from tests.support.cuda_binaries import CUDA, LTO, LZ4, PTX, ZSTD, Counted, entry, fatbin

FATBINS = {path.stem: path.read_bytes() for path in CUDA.glob("*.fatbin")}


def read(data: bytes) -> list[Image]:
    return list(read_images(in_memory(data)))


# issue 13, part "CUDA binaries"
@pytest.mark.parametrize(
    ("mode", "compression"), [("none", None), ("speed", Compression.LZ4), ("size", Compression.ZSTD)]
)
def test_what_nvcc_wrote(mode: str, compression: Compression | None) -> None:
    images = read(FATBINS[mode])
    assert sorted((image.kind, image.architecture, image.number) for image in images) == [
        ("PTX", "90", 90), ("cubin", "75", 75), ("cubin", "90a", 90),
    ]  # fmt: skip
    for image in images:
        assert image.compression is compression
        begin = FATBINS[mode][image.offset : image.offset + 4]
        if compression is None:
            assert begin == (b"\x7fELF" if image.kind == "cubin" else b"\n\n\n\n")
        elif compression is Compression.ZSTD:
            assert begin == bytes.fromhex("28b52ffd")  # RFC 8878, 3.1.1
        assert image.unpacked_size == (0 if compression is None else image.unpacked_size) < 20_000
        assert 500 < image.size < 20_000


IMAGE = Image(kind="cubin", number=80, architecture="80", offset=80, size=8, compression=None, unpacked_size=0)


@pytest.mark.parametrize(
    ("data", "images"),
    [
        (fatbin(), []),
        (bytes(4000), []),
        (fatbin() + bytes(8) + fatbin(entry(b"abcdefgh")) + bytes(40), [(2, "80", 104, 8)]),
        (fatbin(entry(b"abc", PTX, 90, flags=0x108011 - ZSTD)), [(1, "90a", 80, 8)]),
        (fatbin(entry(b"abc", PTX, 100, flags=0x200011)), [(1, "100f", 80, 8)]),
        (fatbin(entry(b"abc", LTO, flags=ZSTD, unpacked=50)), [(8, "80", 80, 3)]),
        (fatbin(entry(b"abc", LTO, flags=LZ4, unpacked=50)), [(8, "80", 80, 3)]),
        (fatbin(entry(b"", header=48), entry(b"abc", header=112)), [(2, "80", 64, 0), (2, "80", 176, 8)]),
        (fatbin(entry(b"", 16)), [(16, "80", 80, 0)]),
        (fatbin(entry(b""), bytes(47)), [(2, "80", 80, 0)]),  # too short for one more
    ],
)
def test_entries(data: bytes, images: list[tuple[int, str, int, int]]) -> None:
    kinds = {1: "PTX", 2: "cubin", 8: "LTO IR", 16: "kind 16"}
    said = [(image.kind, image.architecture, image.offset, image.size) for image in read(data)]
    assert said == [(kinds[kind], *others) for kind, *others in images]


@pytest.mark.parametrize(
    ("flags", "compression"),
    [(0x11, None), (LZ4, Compression.LZ4), (ZSTD, Compression.ZSTD), (LZ4 | ZSTD, Compression.ZSTD)],
)
def test_how_it_is_packed(flags: int, compression: Compression | None) -> None:
    (image,) = read(fatbin(entry(b"abc", flags=flags, unpacked=5)))
    assert (image.compression, image.unpacked_size) == (compression, 5 if compression else 0)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"x", "16 bytes at 0x0"),
        (b"x" * 16, "stands 0x78787878"),
        (bytes(5000), "stands 0x00000000"),
        (fatbin(entry(b"abc"))[:-1], "not all are there"),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 63), "not all are there"),
        (struct.pack("<IHHQ", 0xBA55ED50, 2, 16, 0), "version 2"),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0), "of which nothing is known"),
        (fatbin(entry(b"", header=40) + bytes(8)), "longer than the fatbin"),
        (fatbin(entry(b"abc")[:-1]), "longer than the fatbin"),
        (fatbin(entry(b"abc", flags=LZ4, header=48)), "does not say how large"),
        (fatbin(entry(b"abc", flags=LZ4, unpacked=5).replace(b"\x03\0\0\0", b"\x09\0\0\0")), "does not say how large"),
        (fatbin() * 100_001, "more than 100000 fatbins"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(Malformed, match=says):
        read(data)


# issue 13, "Must show" 7
@given(
    st.one_of(
        st.binary(max_size=400),
        st.lists(st.binary(max_size=120)).map(lambda entries: fatbin(*entries)),
        st.tuples(st.sampled_from(sorted(FATBINS)), st.integers(0, 4000), st.binary(min_size=1, max_size=12)).map(
            lambda drawn: FATBINS[drawn[0]][: drawn[1]] + drawn[2] + FATBINS[drawn[0]][drawn[1] + len(drawn[2]) :]
        ),
    )
)
def test_any_bytes_are_read_or_refused_with_little_work(data: bytes) -> None:
    reader = Counted(data)
    images = []
    try:
        for image in read_images(reader):
            images.append(image)
            assert 0 <= image.offset <= image.offset + image.size <= len(data)
    except Malformed:
        pass
    assert len(images) <= len(data) // 48
    # of each container some padding, of each entry the header
    assert reader.asked <= 4112 * (2 + len(data) // 16) + 56 * len(images)
