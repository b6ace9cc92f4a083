"""Google Cloud Storage's JSON API, as google-cloud-storage speaks to an emulator: list, look up, read by range."""

import base64
import hashlib
import json
import re
from typing import Any
from urllib.parse import unquote

from servers.http import Answer, Request


class Bucket:
    """Buckets: `objects["bucket/name"] = bytes`."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def __call__(self, request: Request) -> Answer:
        if found := re.fullmatch(r"/storage/v1/b/([^/]+)/o", request.path):
            prefix = request.query.get("prefix", "")
            names = sorted(key.partition("/")[2] for key in self.objects if key.partition("/")[0] == found[1])
            return _json(
                {"kind": "storage#objects", "items": [self._said(found[1], n) for n in names if n.startswith(prefix)]}
            )
        if found := re.fullmatch(r"(/download)?/storage/v1/b/([^/]+)/o/(.+)", request.path):
            bucket, name = found[2], unquote(found[3])
            if f"{bucket}/{name}" not in self.objects or request.query.get("generation", "5") != "5":
                return _json({"error": {"code": 404, "message": "No such object"}}, 404)
            if found[1] or request.query.get("alt") == "media":
                return Answer(body=self.objects[f"{bucket}/{name}"], ranges=True)
            return _json(self._said(bucket, name))
        return _json({"error": {"code": 404, "message": "not found"}}, 404)

    def _said(self, bucket: str, name: str) -> dict[str, Any]:
        body = self.objects[f"{bucket}/{name}"]
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": bucket,
            "generation": "5",
            "size": str(len(body)),
            "md5Hash": base64.b64encode(hashlib.md5(body).digest()).decode(),
            "crc32c": "n03x6A==",
        }


def _json(said: Any, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(said).encode())
