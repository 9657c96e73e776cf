"""What a worker and its jailer say to each other, as JSON: specifications, findings, reports.

Both ends are ours. Nothing that a jail wrote is read here but as opaque bytes.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from subako_ray.sandbox.spec import (
    BindMount,
    FileMount,
    JailLimits,
    JailReport,
    JailSpec,
    Mount,
    TemporaryMount,
)

STARTED = b"started\n"
"""The first line on a lease, when its jail was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a host needs in order to isolate.

    `missing` means that nothing is run on this host; `degraded` costs what `detail` says.
    """

    name: str
    state: Literal["ok", "degraded", "missing"]
    detail: str
    help_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why no jail was made."""

    message: str
    help_text: str


def encode_findings(findings: list[Finding]) -> bytes:
    """Writes what a jailer found at its start."""
    return json.dumps([asdict(finding) for finding in findings]).encode()


def decode_findings(data: bytes) -> tuple[Finding, ...]:
    """Reads what `encode_findings` wrote."""
    return tuple(Finding(**finding) for finding in json.loads(data))


def encode_refusal(refusal: Refusal) -> bytes:
    """Writes the first line on a lease whose jail was not made."""
    return json.dumps(asdict(refusal)).encode() + b"\n"


def decode_refusal(data: bytes) -> Refusal:
    """Reads what `encode_refusal` wrote."""
    return Refusal(**json.loads(data))


def encode_spec(spec: JailSpec) -> bytes:
    """Writes a specification."""
    return json.dumps(
        {
            "argv": spec.argv,
            "cwd": spec.cwd,
            "environment": spec.environment,
            "hostname": spec.hostname,
            "limits": asdict(spec.limits),
            "mounts": [_encode_mount(mount) for mount in spec.mounts],
        }
    ).encode()


def decode_spec(data: bytes) -> JailSpec:
    """Reads what `encode_spec` wrote."""
    value: dict[str, Any] = json.loads(data)
    return JailSpec(
        argv=tuple(value["argv"]),
        cwd=value["cwd"],
        environment=tuple((name, text) for name, text in value["environment"]),
        hostname=value["hostname"],
        limits=JailLimits(**value["limits"]),
        mounts=tuple(_decode_mount(mount) for mount in value["mounts"]),
    )


def _encode_mount(mount: Mount) -> dict[str, object]:
    value = {field.name: getattr(mount, field.name) for field in fields(mount)}
    if isinstance(mount, BindMount):
        value["source"] = str(mount.source)
    elif isinstance(mount, FileMount):
        value["content"] = _text(mount.content)
    return value


def _decode_mount(value: dict[str, Any]) -> Mount:
    match value["kind"]:
        case "bind":
            return BindMount(**{**value, "source": Path(value["source"])})
        case "file":
            return FileMount(**{**value, "content": base64.b64decode(value["content"])})
        case _:
            return TemporaryMount(**value)


def encode_report(report: JailReport) -> bytes:
    """Writes the last thing on a lease."""
    value = {field.name: getattr(report, field.name) for field in fields(report)}
    return json.dumps({**value, "stderr": _text(report.stderr)}).encode()


def decode_report(data: bytes) -> JailReport:
    """Reads what `encode_report` wrote."""
    report = JailReport(**json.loads(data))
    stderr = base64.b64decode(report.stderr)
    return replace(report, stderr=stderr, unenforced=tuple(report.unenforced))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
