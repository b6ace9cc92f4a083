"""The hosts that text comes from, all on loopback, and an environment in which the real clients find them there."""

import datetime
import ipaddress
import json
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.http import Answer, Request, Server, file_answer
from servers.hub import Hub
from servers.kaggle import Kaggle
from servers.zenodo import Zenodo

HOSTS = ["api.kaggle.com", "storage.googleapis.com", "zenodo.org", "example.org", "mirror.example.net"]


class Internet:
    """`server` records requests and takes faults; the others are told which corpora they have.

    `environment` is what a child process needs to find them; `pages` are plain files by `host/path`.
    """

    def __init__(self, server: Server, environment: dict[str, str]):
        self.server, self.environment = server, environment
        self.zenodo, self.kaggle, self.hub = Zenodo(), Kaggle(), Hub(cdn=f"http://localhost:{server.port}")
        self.pages: dict[str, Answer] = {}
        server.apps = {
            "zenodo.org": self.zenodo,
            "api.kaggle.com": self.kaggle,
            "storage.googleapis.com": self.kaggle.storage,
            "127.0.0.1": self.hub,
            "localhost": self.hub.storage,
            "example.org": self._page,
            "mirror.example.net": self._page,
        }

    def page(self, address: str, body: bytes, **headers: str) -> str:
        """Put a file at `host/path`; its address."""
        self.pages[address] = file_answer(body, **headers)
        return f"https://{address}"

    def _page(self, request: Request) -> Answer:
        return self.pages.get(request.host + request.path, Answer(404))


@pytest.fixture(scope="session")
def _authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    return _certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def internet(
    _authority: tuple[ssl.SSLContext, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Internet]:
    """Every host on loopback, a home without credentials, an empty cache, and short waits."""
    context, authority = _authority
    server = Server(context)
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "HTTPS_PROXY": f"http://127.0.0.1:{server.port}",
        "NO_PROXY": "127.0.0.1,localhost",
        "REQUESTS_CA_BUNDLE": str(authority),
        "SSL_CERT_FILE": str(authority),
        "HF_ENDPOINT": f"http://127.0.0.1:{server.port}",
        "HOME": str(home),
        "HF_HOME": str(home / "huggingface"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "T5PREP_CACHE": str(tmp_path / "cache"),
        "KAGGLEHUB_CACHE": str(home / "kagglehub"),
    }
    for name in list(os.environ):
        if (
            name.startswith(("KAGGLE_", "HF_", "HUGGING_FACE_"))
            or name.upper().endswith("_PROXY")
            or name == "ZENODO_TOKEN"
        ):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _short_waits(monkeypatch)
    _forget_clients(monkeypatch, home, endpoint=environment["HF_ENDPOINT"])
    yield Internet(server, environment)
    server.close()


def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    from t5prep.sources import http

    monkeypatch.setattr(http, "BACKOFF", 0.01)


def _forget_clients(monkeypatch: pytest.MonkeyPatch, home: Path, *, endpoint: str) -> None:
    """huggingface_hub and kagglehub read some of their settings when imported, and huggingface_hub keeps one client for a process."""
    import huggingface_hub.constants as hub
    import kagglehub.config
    from huggingface_hub.utils import close_session

    close_session()
    monkeypatch.setattr(hub, "ENDPOINT", endpoint)
    monkeypatch.setattr(hub, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(home / "huggingface" / "hub"))
    monkeypatch.setattr(hub, "HF_TOKEN_PATH", str(home / "huggingface" / "token"))
    monkeypatch.setattr(kagglehub.config, "DEFAULT_KAGGLE_CREDENTIALS_FOLDER", str(home / ".kaggle"))


def _certificates(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A certificate authority of our own, and what a server needs to be every host."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)

    def certificate(name: str, key: Any, issuer: x509.Name, signer: Any, *, is_authority: bool) -> x509.Certificate:
        names = [*map(x509.DNSName, HOSTS), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            # Python 3.13 asks for these, as RFC 5280 does.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .add_extension(usage(signs=is_authority), critical=True)
            .sign(signer, hashes.SHA256())
        )

    def usage(*, signs: bool) -> x509.KeyUsage:
        unused_flags = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
        return x509.KeyUsage(
            digital_signature=not signs,
            key_cert_sign=signs,
            crl_sign=signs,
            decipher_only=False,
            **dict.fromkeys(unused_flags, False),
        )

    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    root = certificate("tests", root_key, root_name, root_key, is_authority=True)
    leaf = certificate("everyone", key, root_name, root_key, is_authority=False)
    pem = serialization.Encoding.PEM
    (folder / "authority.pem").write_bytes(root.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "leaf.pem").write_bytes(leaf.public_bytes(pem) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem")
    return context, folder / "authority.pem"


def dumps(payload: Any, status: int = 200, **headers: str) -> Answer:
    """An answer in JSON."""
    return Answer(status, {"Content-Type": "application/json", **headers}, json.dumps(payload).encode())
