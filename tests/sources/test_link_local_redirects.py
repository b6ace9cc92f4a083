"""No host leads a download to a link-local address, where a virtual machine's credentials are."""

import socket
from typing import Any

import pytest
from raised import raises
from servers.http import Answer, Fault
from servers.internet import Internet

from t5prep.errors import SourceError
from t5prep.sources import http, open_stream, resolve

CODE = "source.link-local-redirect"
METADATA = "https://169.254.169.254/computeMetadata/v1/instance/service-accounts/default/token"
FILES = {"train.csv": b"Id,Y\n1,HQ\n", "README.md": b"read me"}


@pytest.mark.parametrize("kind", ["http", "https", "zenodo", "hub", "kaggle", "kaggle twice"])
def test_no_source_follows_a_redirect_to_the_metadata_of_a_machine(internet: Internet, kind: str) -> None:
    port = internet.server.port
    source, match, method = {
        "http": lambda: (f"http://localhost:{port}/a.csv", "localhost/a.csv", "GET"),
        "https": lambda: (internet.page("example.org/a.csv", b"1"), "example.org/a.csv", "GET"),
        "zenodo": lambda: (internet.zenodo.publish(1, FILES, title="t"), "/files/", "GET"),
        "hub": lambda: (internet.hub.publish("owner/name", FILES), "/resolve/", "GET"),
        "kaggle": lambda: (internet.kaggle.publish("owner/name", FILES, version=9), "DownloadDataset", "POST"),
        "kaggle twice": lambda: (internet.kaggle.publish("owner/name", FILES, version=9), "archive.zip", "GET"),
    }[kind]()
    target = METADATA.replace("https", "http") if kind == "http" else METADATA
    internet.server.faults = [Fault(match, method=method, answer=Answer(302, {"Location": target}), times=99)]
    with raises(SourceError, CODE, "169.254.169.254") as refused:
        [open_stream(file).read() for file in resolve(source).files]
    assert "\n" not in str(refused.value)
    assert not internet.server.requests_of("169.254")


RESOLVED = {"rebound.example": "169.254.169.254", "public.example": "93.184.215.14", "v6.example": "fe80::1%eth0"}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer for the hosts of RESOLVED, and read numbers as the system does."""
    getaddrinfo = socket.getaddrinfo

    def look_up(host: str, port: object) -> list[Any]:
        if host in RESOLVED:
            return [(0, 0, 0, "", (RESOLVED[host], 0))]
        if "example" in host or host.startswith("metadata"):
            raise socket.gaierror(host)
        return getaddrinfo(host, port)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "169.254.169.254:80", "0xA9FEA9FE", "2852039166", "169.254.43518", "me@169.254.1.1"),
        *("[fd00:ec2::254]", "[fe80::1]", "[::ffff:169.254.169.254]", "100.100.100.200", "168.63.129.16"),
        *("metadata.google.internal", "METADATA.google.internal.", "metadata", "rebound.example", "v6.example"),
    ],
)
def test_a_link_local_address_is_known_in_every_form(names: None, host: str) -> None:
    with raises(SourceError, CODE):
        http.check_redirect("https://public.example/a", f"http://{host}/a", display_name="a.csv")
    # It is the user who named a link-local host, and it may lead to another one.
    http.check_redirect("http://169.254.0.1/a", f"http://{host}/a", display_name="a.csv")


@pytest.mark.parametrize(
    "host", ["public.example", "unknown.example", "127.0.0.1", "10.0.0.1", "[::1]", "[", "", "a" * 99]
)
def test_every_other_address_is_followed(names: None, host: str) -> None:
    http.check_redirect("https://public.example/a", f"http://{host}/a", display_name="a.csv")
