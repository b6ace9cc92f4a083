"""Kaggle's API, as kagglesdk calls it, too: POST /v1/datasets.DatasetApiService/..., redirecting to signed addresses."""

import base64
import hashlib
import io
import json
import zipfile
from typing import Any

from servers.http import Answer, Request, file_answer

SERVICE = "/v1/datasets.DatasetApiService"


class Kaggle:
    """`publish` a dataset; `private` ones are shown to `token` (bearer) or `basic` (user:key) only."""

    def __init__(self) -> None:
        self._datasets: dict[str, dict[str, Any]] = {}
        self._objects: dict[str, bytes] = {}
        self._private: set[str] = set()
        self.token = "KGAT_the_right_token"
        self.basic = "jane:0123456789abcdef"

    def publish(
        self, name: str, files: dict[str, bytes], *, version: int = 1, private: bool = False, zipped: str = ""
    ) -> str:
        """A version of `owner/slug`; the file named `zipped` is handed out as a zip when asked for alone."""
        owner = name.partition("/")[0]
        self._datasets[name] = {
            "id": 7,
            "ref": name,
            "title": "Questions",
            "creatorName": "Jane Doe",
            "licenseName": "CC BY-SA 4.0",
            "currentVersionNumber": version,
            "ownerName": owner,
            "url": f"https://www.kaggle.com/datasets/{name}",
            "totalBytes": sum(map(len, files.values())),
        }
        if private:
            self._private.add(name)
        self._objects[f"/{name}/{version}/archive.zip"] = zip_of(files)
        for key, body in files.items():
            if key == zipped:
                self._objects[f"/{name}/{version}/{key}.zip"] = zip_of({key: body})
            else:
                self._objects[f"/{name}/{version}/{key}"] = body
        return f"kaggle:{name}"

    def __call__(self, request: Request) -> Answer:
        payload = json.loads(request.body or b"{}")
        name = f"{payload.get('ownerSlug')}/{payload.get('datasetSlug')}"
        authorization = request.headers.get("authorization", "")
        basic = f"Basic {base64.b64encode(self.basic.encode()).decode()}"
        if authorization and authorization not in (f"Bearer {self.token}", basic):
            return _json({"code": 401, "message": f"Unauthenticated: {authorization}"}, 401)
        if name not in self._datasets or (name in self._private and not authorization):
            status = 403 if name in self._private else 404
            return _json({"code": status, "message": "Permission 'datasets.get' was denied"}, status)
        if request.path == f"{SERVICE}/GetDataset":
            return _json(self._datasets[name])
        if request.path == f"{SERVICE}/DownloadDataset":
            version = payload.get("datasetVersionNumber") or self._datasets[name]["currentVersionNumber"]
            key = f"/{name}/{version}/{payload.get('fileName') or 'archive.zip'}"
            key = f"{key}.zip" if f"{key}.zip" in self._objects else key
            if key not in self._objects:
                return _json({"code": 404, "message": "not found"}, 404)
            signed = "X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Signature=5ecre7519"
            return Answer(302, {"Location": f"https://storage.googleapis.com/kaggle-data-sets{key}?{signed}"})
        return _json({"code": 404, "message": "no such method"}, 404)

    def storage(self, request: Request) -> Answer:
        """The storage that signed addresses point to."""
        body = self._objects.get(request.path.removeprefix("/kaggle-data-sets"))
        if body is None or request.query.get("X-Goog-Signature") != "5ecre7519":
            return Answer(
                403, {"Content-Type": "application/xml"}, b"<Error><Code>SignatureDoesNotMatch</Code></Error>"
            )
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        return file_answer(body, **{"x-goog-hash": f"crc32c=n03x6A==,md5={md5}", "Content-Type": "application/zip"})


def zip_of(files: dict[str, bytes]) -> bytes:
    """A zip with these members, the same bytes every time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), body, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _json(payload: Any, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(payload).encode())
