"""Archives that are damaged or that somebody made to do harm."""

import gzip
import io
import re
import sys
import tarfile

import pytest

from pullback.data.archive import read_members
from pullback.errors import DataError

TEXT = re.compile(r"a/.*\.txt")
CONTENT = {"a/1.txt": b"one", "b/other.txt": b"passed over", "a/2.txt": b"x" * 512, "a/3.txt": b""}


def members(path, largest=1000, limit=1_000_000):
    return list(read_members(path, largest=largest, limit=limit, wanted=TEXT))


def special(kind, size=0, link=""):
    member = tarfile.TarInfo()
    member.type, member.size, member.linkname = kind, size, link
    return member


@pytest.mark.parametrize("mode", ["w:gz", "w"])
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_wanted_files_in_order(tmp_path, mode, form):
    long = f"a/{'long/' * 40}name.txt"
    path = tmp_path / "a.tar"
    with tarfile.open(path, mode, format=form) as archive:
        for name, content in {**CONTENT, **({long: b"deep"} if form != tarfile.USTAR_FORMAT else {})}.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    expected = [(name, content) for name, content in CONTENT.items() if name.startswith("a/")]
    if form != tarfile.USTAR_FORMAT:
        expected.append((long, b"deep"))
    assert members(path) == expected


def test_folders_are_passed_over(write_archive):
    path = write_archive([("a", special(tarfile.DIRTYPE)), ("a/1.txt", b"one")])
    assert members(path) == [("a/1.txt", b"one")]


@pytest.mark.parametrize("name", ["../a/1.txt", "a/../../1.txt", "/a/1.txt", "a\\..\\1.txt", "C:/a/1.txt"])
def test_names_that_lead_out(write_archive, tmp_path, name):
    path = write_archive([("a/0.txt", b"zero"), (name, b"one")])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="which leads out of the archive"):
        members(path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("member", "what"),
    [
        (special(tarfile.SYMTYPE, link="/etc/passwd"), "link"),
        (special(tarfile.LNKTYPE, link="a/0.txt"), "link"),
        (special(tarfile.CHRTYPE), "special file"),
        (special(tarfile.FIFOTYPE), "special file"),
    ],
    ids=["symbolic link", "hard link", "device", "pipe"],
)
def test_what_is_no_file(write_archive, member, what):
    with pytest.raises(DataError, match=f"found the {what} 'a/1.txt'"):
        members(write_archive([("a/0.txt", b"zero"), ("a/1.txt", member)]))


def test_a_file_that_is_too_large(write_archive):
    path = write_archive({"b/large.bin": bytes(5000), "a/1.txt": bytes(1001)})
    with pytest.raises(DataError, match=r"'a/1.txt' of 1,001 bytes, the most is 1,000"):
        members(path)


def test_more_content_than_allowed(write_archive):
    path = write_archive({f"b/{k}.bin": bytes(100_000) for k in range(20)})
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match="more than 1,000,000 bytes of content"):
        members(path)


def test_more_content_than_allowed_behind_the_end(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(3_000_000)))
    # Python 3.10 goes back over blocks without a header.
    before = sys.version_info < (3, 11)
    found = "a header that leads backwards" if before else "more than 1,000,000 bytes of content"
    with pytest.raises(DataError, match=found):
        members(tmp_path / "a.tar.gz")


def block(name, size, kind=b"0"):
    """A header that tells what it likes; ``size`` is the field's twelve bytes."""
    header = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    header[124:136], header[156:157] = size, kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def test_a_header_that_promises_more_than_there_is(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(block("a/1.txt", b"00000001750\0") + b"short")
    with pytest.raises(DataError, match="truncated"):
        members(path)


@pytest.mark.parametrize("kind", [b"x", b"L", b"g"], ids=["pax", "long name", "pax for all"])
def test_a_header_with_an_absurd_name(tmp_path, kind):
    path = tmp_path / "a.tar"
    path.write_bytes(block("a/1.txt", b"77777777777\0", kind) + bytes(2048))
    with pytest.raises(
        DataError, match=r"a header or file of 8,589,9\d\d,\d\d\d bytes|damaged or no archive"
    ):
        members(path)


def test_a_header_that_leads_backwards(tmp_path):
    path = tmp_path / "a.tar"
    negative = b"\xff" * 10 + (-1536 & 0xFFFF).to_bytes(2, "big")
    path.write_bytes(block("a/0.txt", b"00000000000\0") * 4 + block("b/1.txt", negative) + bytes(2048))
    with pytest.raises(DataError, match=r"leads backwards|damaged"):
        members(path)


@pytest.mark.parametrize("mode", ["w:gz", "w"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_truncated_archives(write_archive, mode, share):
    path = write_archive({f"a/{k}.txt": bytes([k]) * 700 for k in range(30)}, mode=mode)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content)) if mode == "w:gz" else int(share * 30 * 1536)])
    with pytest.raises(DataError, match="truncated"):
        members(path)


def test_a_damaged_header_is_not_the_end(write_archive):
    path = write_archive({f"a/{k}.txt": b"x" * 100 for k in range(5)}, mode="w")
    content = bytearray(path.read_bytes())
    content[2 * 1024 + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="its end mark is missing"):
        members(path)


def test_a_flipped_bit_in_gzip(write_archive):
    path = write_archive(CONTENT)
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # of the checksum, which is read last
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        members(path)


@pytest.mark.parametrize(
    "content", [b"", b"no archive", b"\x1f\x8bno gzip", gzip.compress(b"no archive", mtime=0)]
)
def test_other_files(tmp_path, content):
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"damaged|truncated"):
        members(tmp_path / "a.tar.gz")


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        members(tmp_path / "none.tar.gz")


def test_an_archive_that_holds_far_more_than_it_has(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", compresslevel=1) as archive:
        for number in range(100):
            member = tarfile.TarInfo(f"{number}.txt")
            member.size = 1 << 20
            archive.addfile(member, io.BytesIO(bytes(1 << 20)))
    with pytest.raises(DataError, match=r"a.tar.gz holds more than .* bytes"):
        list(read_members(tmp_path / "a.tar.gz", largest=1 << 20, limit=10**9, wanted=re.compile(".*")))
