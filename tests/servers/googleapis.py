"""TensorFlow's own gs:// client against the emulator.

That client speaks to https://www.googleapis.com and https://storage.googleapis.com and to nothing else. So it runs in a
child whose private mount namespace (`unshare -m`) has its own /etc/hosts, which names this machine, and its own list
of authorities, which trusts a certificate made here; on 127.0.0.1:443 stands a front with TLS. It is the path that a
TPU host takes: the same client, the same requests. Google's client for Python, which reads the blocks of shards, speaks
to a front without TLS. Needs root, Linux, openssl, and port 443.
"""

import fcntl
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.gcs_emulator import Front

_HOSTS = ("www.googleapis.com", "storage.googleapis.com")
# Where distributions keep the authorities that libcurl reads.
_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


class Googleapis:
    """The fronts of TensorFlow's client (`front`, TLS) and of Python's (`python`), and programs that see them as Google."""

    def __init__(self, front: Front, python: Front, folder: Path):
        self.front, self.python, self._folder = front, python, folder

    def run(self, program: str, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """A Python program in the namespace."""
        files = {"/etc/hosts": "hosts"} | {name: "cert.pem" for name in _AUTHORITIES if Path(name).exists()}
        mounts = " && ".join(f"mount --bind {self._folder / file_name} {name}" for name, file_name in files.items())
        prefixes = ("CA_", "SSL", "PROXY", "STORAGE_EMULATOR_HOST")
        environment = {
            key: value for key, value in os.environ.items() if not any(word in key.upper() for word in prefixes)
        }
        environment |= {
            "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{self.python.port}",
            "NO_GCE_CHECK": "true",  # there is no metadata server to ask for a token
            "GCS_READ_CACHE_BLOCK_SIZE_MB": "1",  # by default each file that is opened zeroes a buffer of 64 MB
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]),
        }
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$0" -c "$@"', sys.executable, program, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )


@pytest.fixture
def googleapis(emulator: int, tmp_path: Path) -> Iterator[Googleapis]:
    """The fronts before a running emulator; skips where another program has the port."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    names = ",".join(f"DNS:{host}" for host in _HOSTS)
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={_HOSTS[0]} -addext subjectAltName={names}"
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    (tmp_path / "hosts").write_text(f"127.0.0.1 localhost {' '.join(_HOSTS)}\n")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with open(Path(tempfile.gettempdir()) / "t5prep-googleapis.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test has the port; it ends
        try:
            front = Front(emulator, port=443, tls=tls)
        except OSError as error:
            pytest.skip(f"port 443 of this machine is taken ({error})")
        python = Front(emulator)
        yield Googleapis(front, python, tmp_path)
        python.close()
        front.close()
