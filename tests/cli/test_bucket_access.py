"""What the doctor says of a bucket."""

import pytest

from t5prep.cli._checks import bucket_findings
from t5prep.io import gcs

pytestmark = pytest.mark.extra("fake-gcs-server")


def map_states(findings):
    return {finding.what.removeprefix("bucket: "): finding.state == "ok" for finding in findings}


def test_a_bucket_that_works_says_so_and_is_left_as_it_was(bucket, front):
    gcs.write(f"{bucket}/data/a", b"1")
    findings = list(bucket_findings(f"{bucket}/data"))
    assert map_states(findings) == {"list": True, "write": True, "read": True, "delete": True}
    assert "sees 1 objects" in findings[0].seen
    assert list(gcs.objects(f"{bucket}/data")) == ["a"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("list", {"list": False}),
        ("multipart", {"list": True, "write": False}),
        ("read", {"list": True, "write": True, "read": False, "delete": True}),
        ("delete", {"list": True, "write": True, "read": True, "delete": False}),
    ],
)
def test_what_is_not_allowed_comes_with_the_command_that_allows_it(bucket, front, kind, expected):
    front.fault = lambda request: "403" if request.kind == kind else ""
    findings = list(bucket_findings(bucket))
    assert map_states(findings) == expected
    refused = next(finding for finding in findings if finding.state == "wrong")
    assert "storage.objects." in refused.seen
    assert f"gcloud storage buckets add-iam-policy-binding {bucket} " in refused.seen


def test_no_bucket_and_no_place(front):
    (finding,) = bucket_findings("gs://there-is-none-of-this-name")
    assert "gcloud storage buckets create" in finding.fix
    (finding,) = bucket_findings("data")
    assert "gs://bucket/prefix" in finding.seen
