"""Unpacking by the system's libraries: what compilers packed comes out whole, and nothing else comes out."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Malformed, Unavailable
from exporter.probe import fatbin as unpacking
from exporter.probe.elf import in_memory
from exporter.probe.fatbin import MOST_IMAGE_BYTES, Compression, Image, read_images, unpack
from tests.support.cuda_binaries import CUDA


def packed(mode: str) -> dict[tuple[str, str], tuple[Image, bytes]]:
    data = (CUDA / f"{mode}.fatbin").read_bytes()
    images = read_images(in_memory(data))
    return {
        (image.kind, image.architecture): (image, data[image.offset : image.offset + image.size]) for image in images
    }


@pytest.mark.parametrize("mode", ["speed", "size"])
def test_what_comes_out_is_what_was_not_packed(mode: str) -> None:
    whole, images = packed("none"), packed(mode)
    assert images.keys() == whole.keys()
    for key, (image, data) in images.items():
        assert image.compression is not None
        # an image that is not packed has zeros after it
        assert unpack(image.compression, data, image.unpacked_size) == whole[key][1][: image.unpacked_size]
        assert len(whole[key][1]) - image.unpacked_size < 8


@pytest.mark.parametrize("mode", ["speed", "size"])
def test_another_size_is_refused(mode: str) -> None:
    image, data = packed(mode)["cubin", "75"]
    assert image.compression is not None
    for size in (image.unpacked_size - 1, image.unpacked_size + 1, 1, 0):
        with pytest.raises(Malformed, match=r"come out of|came out"):
            unpack(image.compression, data, size)
    with pytest.raises(Malformed, match="the most that is unpacked"):
        unpack(image.compression, data, MOST_IMAGE_BYTES + 1)


# issue 13, "Must show" 7
@given(st.sampled_from(Compression), st.binary(max_size=200), st.integers(0, 1 << 20))
def test_any_bytes_are_unpacked_or_refused(compression: Compression, data: bytes, size: int) -> None:
    with suppress(Malformed):
        assert len(unpack(compression, data, size)) == size


# issue 13, "Must show" 7
@given(st.sampled_from(["speed", "size"]), st.data())
def test_damaged_images_are_unpacked_or_refused(mode: str, data: st.DataObject) -> None:
    image, original = packed(mode)["cubin", "90a"]
    assert image.compression is not None
    place = data.draw(st.integers(0, len(original) - 1))
    piece = data.draw(st.binary(min_size=1, max_size=4))
    with suppress(Malformed):
        unpack(image.compression, original[:place] + piece + original[place + len(piece) :], image.unpacked_size)


def test_where_the_library_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ("libzstd-that-is-not-here.so.1", *unpacking._LIBRARIES[Compression.ZSTD][1:])
    monkeypatch.setitem(unpacking._LIBRARIES, Compression.ZSTD, missing)
    unpacking._decompress.cache_clear()
    try:
        with pytest.raises(Unavailable, match=r"libzstd-that-is-not-here\.so\.1 is not on this machine"):
            unpack(Compression.ZSTD, b"abc", 5)
    finally:
        unpacking._decompress.cache_clear()
