"""The Hugging Face Hub: /api/datasets/..., auth-check, and large files that redirect to a storage host."""

import base64
import dataclasses
import hashlib
import json
import re
from typing import Any
from urllib.parse import unquote

from servers.http import Answer, Request, file_answer


@dataclasses.dataclass
class _Repo:
    revisions: dict[str, dict[str, bytes]]
    card: dict[str, Any]
    gated: bool
    private: bool


class Hub:
    """`publish` a dataset. Files of `large` bytes and more are in "LFS": listed with their SHA-256, served by `cdn`.

    `models` are files by name of a model; who has the token may make one and commit to it. `commits` are its messages, and
    `history` has its files after each. A file that is already there has an `oid`, by which clients leave it out.
    """

    def __init__(self, cdn: str) -> None:
        self._cdn, self._repos, self.large = cdn, {}, 512
        self.models: dict[str, dict[str, bytes]] = {}
        self.commits: dict[str, list[str]] = {}
        self.history: dict[str, list[dict[str, bytes]]] = {}
        self.token = "hf_the_right_token"

    def publish(
        self,
        name: str,
        files: dict[str, bytes],
        *,
        branches: dict[str, dict[str, bytes]] | None = None,
        card: dict[str, Any] | None = None,
        gated: bool = False,
        private: bool = False,
    ) -> str:
        """A dataset with these files on main (and on other branches); its source."""
        self._repos[name] = _Repo({"main": files, **(branches or {})}, card or {}, gated, private)
        return f"hf:{name}"

    def sha(self, name: str, branch: str = "main") -> str:
        """The commit that a branch is at."""
        file_digests = sorted(
            (key, hashlib.sha1(body).hexdigest()) for key, body in self._repos[name].revisions[branch].items()
        )
        return hashlib.sha1(json.dumps([name, branch, file_digests]).encode()).hexdigest()

    def __call__(self, request: Request) -> Answer:
        authorization = request.headers.get("authorization", "")
        is_authorized = authorization == f"Bearer {self.token}"
        if authorization and not is_authorized:
            return _error(401, "", "Invalid credentials in Authorization header")
        if request.method == "POST":
            return self._written(request) if is_authorized else _error(401, "", "Invalid username or password.")
        if match := re.fullmatch(r"/api/datasets/([\w.-]+/[\w.-]+)(?:/revision/(.+)|(/auth-check))?", request.path):
            repo = self._repos.get(match[1])
            if not repo or (repo.private and not is_authorized):
                return _error(401, "RepoNotFound", "Repository not found")
            if match[3]:
                return (
                    _error(403, "GatedRepo", "Access is restricted") if repo.gated and not is_authorized else _json({})
                )
            return self._info(match[1], repo, unquote(match[2] or "main"))
        if match := re.fullmatch(r"/datasets/([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)", request.path):
            repo = self._repos.get(match[1])
            if not repo or (repo.private and not is_authorized):
                return _error(401, "RepoNotFound", "Repository not found")
            if repo.gated and not is_authorized:
                return _error(403, "GatedRepo", "Access is restricted")
            return self._file(match[1], repo, unquote(match[2]), unquote(match[3]))
        if match := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+|[\w.-]+)", request.path):
            return self._model(match[1])
        if match := re.fullmatch(r"/([\w.-]+/[\w.-]+|[\w.-]+)/resolve/(\w+)/(.+)", request.path):
            name, revision, key = match[1], match[2], unquote(match[3])
            if name not in self.models or revision not in ("main", self.model_sha(name)):
                return _error(401, "RepoNotFound", "Repository not found")
            if key not in self.models[name]:
                return _error(404, "EntryNotFound", "Entry not found")
            return file_answer(self.models[name][key], **{"X-Repo-Commit": self.model_sha(name)})
        return _error(404, "", "not found")

    def _written(self, request: Request) -> Answer:
        """What `HfApi.create_repo` and `HfApi.upload_folder` ask, every file a regular one."""
        if request.path == "/api/validate-yaml":
            return _json({"errors": [], "warnings": []})
        json_lines = [json.loads(line) for line in request.body.splitlines()]
        if request.path == "/api/repos/create":
            name = f"{json_lines[0].get('organization') or 'me'}/{json_lines[0]['name']}"
            self.models.setdefault(name, {})
            self.commits.setdefault(name, [])
            return _json({"url": f"http://{request.headers['host']}/{name}", "name": name, "id": name})
        if match := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/preupload/main", request.path):
            blob_ids = {path: _blob(body) for path, body in self.models[match[1]].items()}
            modes = [
                {"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": blob_ids.get(path)}
                for path in (file["path"] for file in json_lines[0]["files"])
            ]
            return _json({"files": modes})
        if match := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/commit/main", request.path):
            name, files = match[1], [line["value"] for line in json_lines if line["key"] == "file"]
            self.models[name] |= {file["path"]: base64.b64decode(file["content"]) for file in files}
            self.commits[name] += [line["value"]["summary"] for line in json_lines if line["key"] == "header"]
            self.history.setdefault(name, []).append(dict(self.models[name]))
            sha = self.model_sha(name)
            return _json({"commitUrl": f"http://{request.headers['host']}/{name}/commit/{sha}", "commitOid": sha})
        return _error(404, "", "not found")

    def model_sha(self, name: str) -> str:
        """The commit that a model's main branch is at."""
        file_digests = sorted((key, hashlib.sha1(body).hexdigest()) for key, body in self.models[name].items())
        return hashlib.sha1(json.dumps([name, file_digests]).encode()).hexdigest()

    def _model(self, name: str) -> Answer:
        if name not in self.models:
            return _error(401, "RepoNotFound", "Repository not found")
        siblings = [{"rfilename": key} for key in sorted(self.models[name])]
        return _json({"id": name, "sha": self.model_sha(name), "private": False, "tags": [], "siblings": siblings})

    def storage(self, request: Request) -> Answer:
        """The storage host: signed addresses, no Authorization wanted."""
        if "authorization" in request.headers:
            return Answer(400, body=b"Only one auth mechanism allowed")
        match = re.fullmatch(r"/lfs/([\w.-]+/[\w.-]+)/(\w+)/(.+)", unquote(request.path))
        if not match or request.query.get("X-Amz-Signature") != "5ecre7":
            return Answer(403)
        name, sha, key = match.groups()
        return file_answer(self._revision_files(name, sha)[key])

    def _revision_files(self, name: str, revision: str) -> dict[str, bytes] | None:
        for branch, files in self._repos[name].revisions.items():
            if revision in (branch, self.sha(name, branch)):
                return files
        return None

    def _info(self, name: str, repo: _Repo, revision: str) -> Answer:
        files = self._revision_files(name, revision)
        if files is None:
            return _error(404, "RevisionNotFound", "Invalid rev id")
        branch = next(key for key, value in repo.revisions.items() if value is files)
        return _json(
            {
                "id": name,
                "sha": self.sha(name, branch),
                "gated": "auto" if repo.gated else False,
                "private": repo.private,
                "tags": ["license:mit", "arxiv:1910.10683"],
                "cardData": repo.card if branch == "main" else {},
                "siblings": [self._sibling(key, body) for key, body in sorted(files.items())],
            }
        )

    def _sibling(self, key: str, body: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {"rfilename": key, "size": len(body), "blobId": _blob(body)}
        if len(body) >= self.large:
            entry["lfs"] = {"size": len(body), "sha256": hashlib.sha256(body).hexdigest(), "pointerSize": 134}
        return entry

    def _file(self, name: str, repo: _Repo, revision: str, key: str) -> Answer:
        files = self._revision_files(name, revision) or {}
        if key not in files:
            return _error(404, "EntryNotFound", "Entry not found")
        revision = next(self.sha(name, branch) for branch, value in repo.revisions.items() if value is files)
        body, commit = files[key], {"X-Repo-Commit": revision}
        if len(body) >= self.large:
            linked = {"X-Linked-Etag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Linked-Size": str(len(body))}
            url = f"{self._cdn}/lfs/{name}/{revision}/{key}?X-Amz-Signature=5ecre7"
            return Answer(302, {"Location": url, **linked, **commit})
        return file_answer(body, **commit)


def _blob(body: bytes) -> str:
    """Git's name of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def _json(payload: Any, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(payload).encode())


def _error(status: int, code: str, message: str) -> Answer:
    answer = _json({"error": message}, status)
    answer.headers |= {"X-Error-Code": code, "X-Error-Message": message} if code else {"X-Error-Message": message}
    return answer
