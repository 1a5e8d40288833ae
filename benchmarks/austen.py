"""Jane Austen's novels out of Debian's package r-cran-janeaustenr.

    apt-get download r-cran-janeaustenr
    dpkg-deb -x r-cran-janeaustenr_*.deb unpacked
    python -m benchmarks.austen unpacked texts

writes ``texts/austen.txt`` (five novels) and ``texts/persuasion.txt`` (the sixth, to be
held out). R keeps each novel as compressed records of one character vector.
"""

import struct
import sys
import zlib
from pathlib import Path

#: Kinds of R's serialised objects: a vector of strings, and one of its strings.
VECTOR, STRING = 16, 9
HELD = "Persuasion"


def novels(unpacked: Path) -> dict[str, bytes]:
    """Title and text of each novel."""
    store = next(unpacked.rglob("janeaustenr/data/Rdata.rdb")).read_bytes()
    found, at = {}, 0
    while at < len(store):
        record = zlib.decompressobj()
        lines = strings(record.decompress(store[at + 4 :]))  # behind the length
        at = len(store) - len(record.unused_data)
        title = next(line for line in lines if line.strip())
        found[title.decode().strip()] = b"\n".join(lines) + b"\n"
    return found


def strings(record: bytes) -> list[bytes]:
    """The strings of a character vector in R's portable (big-endian) form."""
    at = record.index(struct.pack(">I", VECTOR))
    (count,) = struct.unpack_from(">I", record, at + 4)
    at, found = at + 8, []
    for _ in range(count):
        flags, size = struct.unpack_from(">II", record, at)
        if flags & 255 != STRING:
            raise ValueError(f"byte {at} does not begin a string of R")
        found.append(record[at + 8 : at + 8 + size])
        at += 8 + size
    return found


def main() -> None:
    """Write the novels to learn from, and the one to be judged by."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: python -m benchmarks.austen UNPACKED TEXTS")
    books, out = novels(Path(sys.argv[1])), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    held = books.pop(HELD)
    (out / "austen.txt").write_bytes(b"".join(books.values()))
    (out / "persuasion.txt").write_bytes(held)
    for title, text in books.items():
        sys.stdout.write(f"{title}: {len(text):,} bytes\n")


if __name__ == "__main__":
    main()
