"""Zenodo's records API: GET /api/records/N, and each file's bytes at its links.self (".../content")."""

import hashlib
import json
import re
from typing import Any
from urllib.parse import quote, unquote

from servers.http import Answer, Request, file_answer


class Zenodo:
    """`publish` a record; ask for it as the real one is asked."""

    def __init__(self) -> None:
        self._records: dict[str, dict[str, Any]] = {}
        self._files: dict[tuple[str, str], bytes] = {}
        self.token = ""  # the only one that restricted records are shown to; "" means all are open

    def publish(self, record: int, files: dict[str, bytes], **metadata: Any) -> str:
        """A record with these files; its source."""
        for key, body in files.items():
            self._files[str(record), key] = body
        self._records[str(record)] = {
            "id": record,
            "conceptrecid": str(record - 1),
            "doi": f"10.5281/zenodo.{record}",
            "metadata": {
                "title": "A corpus",
                "version": "v1.0",
                "publication_date": "2022-10-12",
                "creators": [{"name": "Doe, Jane", "affiliation": None}, {"name": "Roe, Richard"}],
                "license": {"id": "cc-by-4.0"},
                "access_right": "open",
                **metadata,
            },
            "files": [
                {
                    "id": hashlib.sha1(key.encode()).hexdigest(),
                    "key": key,
                    "size": len(body),
                    "checksum": f"md5:{hashlib.md5(body).hexdigest()}",
                    "links": {"self": f"https://zenodo.org/api/records/{record}/files/{quote(key)}/content"},
                }
                for key, body in files.items()
            ],
        }
        return f"zenodo:{record}"

    def __call__(self, request: Request) -> Answer:
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return _json({"status": 403, "message": "Permission denied."}, 403)
        if match := re.fullmatch(r"/api/records/(\d+)", request.path):
            record = self._records.get(match[1])
            missing = {"status": 404, "message": "The persistent identifier does not exist."}
            return _json(record) if record else _json(missing, 404)
        if match := re.fullmatch(r"/api/records/(\d+)/files/(.+)/content", request.path):
            body = self._files.get((match[1], unquote(match[2])))
            if body is not None:
                return file_answer(body, **{"Content-Type": "application/octet-stream"})
        return _json({"status": 404, "message": "not found"}, 404)


def _json(payload: Any, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(payload).encode())
