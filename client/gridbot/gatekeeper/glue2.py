"""What clients are told of the service and of jobs, in GLUE 2.  Pure.

https://www.ogf.org/documents/GFD.147.pdf
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from gridbot.gatekeeper.descriptions import MOST_SLOTS, QUEUE
from gridbot.gatekeeper.jobs import AcceptedJob

NAMESPACE = "http://schemas.ogf.org/glue/2009/03/spec_2.0_r1"
_CAPABILITIES = [
    "executionmanagement.jobexecution", "executionmanagement.jobcreation",
    "executionmanagement.jobmanagement", "information.discovery.job",
]  # fmt: skip


def service(base: str) -> Mapping[str, Any]:
    """The service at a URL: one endpoint, one queue, one kind of machines."""
    host = _host(base)

    def urn(kind: str, name: str) -> str:
        return f"urn:ogf:{kind}:{host}:{name}"

    endpoint = {
        "@BaseType": "Endpoint",
        "ID": urn("ComputingEndpoint", "arcrest"),
        "URL": base,
        "Capability": _CAPABILITIES,
        "Technology": "rest",
        "InterfaceName": "org.nordugrid.arcrest",
        "InterfaceVersion": "1.0",
        "ImplementationName": "GridBot",
        "QualityLevel": "production",
        "HealthState": "ok",
        "ServingState": "production",
        "JobDescription": ["emies:adl", "nordugrid:xrsl"],
    }
    environment = {
        "@BaseType": "Resource",
        "ID": urn("ExecutionEnvironment", QUEUE),
        "OSFamily": "linux",
        "ConnectivityIn": "false",
        "ConnectivityOut": "false",
    }
    share = {
        "@BaseType": "Share",
        "ID": urn("ComputingShare", QUEUE),
        "Name": QUEUE,
        "MappingQueue": QUEUE,
        "ServingState": "production",
        "MaxSlotsPerJob": MOST_SLOTS,
        "Associations": {
            "ComputingEndpointID": endpoint["ID"],
            "ExecutionEnvironmentID": environment["ID"],
        },
    }
    manager = {
        "@BaseType": "Manager",
        "ID": urn("ComputingManager", "gridbot"),
        "ProductName": "gridbot",
        "ExecutionEnvironments": {"ExecutionEnvironment": environment},
    }
    computing = {
        "@BaseType": "Service",
        "ID": urn("ComputingService", "arex"),
        "Capability": _CAPABILITIES,
        "Type": "org.nordugrid.arex",
        "QualityLevel": "production",
        "ComputingEndpoint": endpoint,
        "ComputingShare": share,
        "ComputingManager": manager,
    }
    domain = {"Name": host, "Services": {"ComputingService": computing}}
    return {"Domains": {"@xmlns": NAMESPACE, "AdminDomain": domain}}


def activity(base: str, job: AcceptedJob) -> Mapping[str, Any]:
    """What is known of a job; what is not yet known is left out."""
    wanted, end = job.description, job.end
    told: dict[str, Any] = {
        "@xmlns": NAMESPACE,
        "@BaseType": "Activity",
        "@CreationTime": _time(job.created),
        "ID": f"urn:caid:{_host(base)}:org.nordugrid.arcrest:{job.id}",
        "IDFromEndpoint": f"urn:idfe:{job.id}",
        "Name": wanted.name,
        "Type": "single",
        "State": f"arcrest:{job.shown}",
        "Owner": job.subject,
        "Queue": QUEUE,
        "RequestedSlots": wanted.slots,
        "SubmissionTime": _time(job.created),
        "StdIn": wanted.stdin,
        "StdOut": wanted.stdout,
        "StdErr": wanted.stderr,
        "LocalIDFromManager": job.bot,
    }
    if job.ended is not None:
        told |= {
            "ExitCode": end.exit_code,
            "Error": end.reason,
            "EndTime": _time(job.ended),
            "UsedTotalWallTime": end.wall_seconds,
            "UsedTotalCPUTime": end.cpu_seconds,
        }
    return {name: value for name, value in told.items() if value not in (None, "")}


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
