"""What is not text is called what it is, and no advice leads back to itself."""

import pytest
from raised import raises

from t5prep.errors import SourceError, UsageError
from t5prep.reading import encodings
from t5prep.reading.formats import Format


@pytest.mark.parametrize(
    ("head", "value"),
    [
        (b"\x28\xb5\x2f\xfd\x04\x00\x99", ".zst"),
        (b"\x1f\x8b\x08\x00\xff\xff", ".gz"),
        (b"PK\x03\x04\x14\xff\xfe", "zip"),
        (b"PAR1\x15\x04\xff\x80", "--format parquet"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_is_packed_is_no_encoding(head: bytes, value: str, encoding: str) -> None:
    with raises(SourceError, "file.binary-content", "a.txt", value) as refused:
        encodings.check(head, Format("text", encoding), name="a.txt")
    assert "--encoding" not in str(refused.value)


def test_what_was_advised_is_not_advised_again() -> None:
    """Bytes that no encoding makes text of: whatever is followed, the advice comes to an end."""
    head = bytes(range(128, 256)) * 4 + b"\x81\x8d\x8f\x90\x9d" * 20
    encoding, tried = "utf-8", set()
    for _ in range(5):
        tried.add(encoding)
        try:
            encodings.check(head, Format("text", encoding), name="a.txt")
        except SourceError as error:
            if "--encoding" not in str(error):
                return
            encoding = str(error).rpartition(" ")[2]
            assert encoding not in tried
        else:
            return
    pytest.fail("the advice never ended")


@pytest.mark.parametrize("head", [b"", b"id,text"])
@pytest.mark.parametrize("encoding", ["latin-99", "base64", "undefined", "punycode"])
def test_an_encoding_that_python_does_not_know_is_refused_for_an_empty_file_too(head: bytes, encoding: str) -> None:
    with raises(UsageError, "option.invalid-encoding", str(encoding)):
        encodings.check(head, Format("text", encoding), name="a.txt")
