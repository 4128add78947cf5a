"""`spool-worker check`: prints the findings of `worker.diagnostics.check`. Knows printing and the exit
code."""

import json
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter


def check(
    *,
    as_json: Annotated[bool, Parameter(name="--json", help="Print one JSON array.")] = False,
) -> None:
    """Check whether a worker can run on this machine; exit code 1 if not."""
    from spool.logs import configure_logs
    from spool.settings import load_settings
    from worker.diagnostics.check import check_machine

    settings = load_settings()
    configure_logs(settings.log_json)
    findings = []
    for finding in check_machine(settings):
        findings.append(finding)
        if not as_json:
            print(f"{finding.level:<4}  {finding.name:<14} {finding.text}")
            if finding.advice:
                print(f"{'':<20} → {finding.advice}")
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    if any(finding.level == "fail" for finding in findings):
        raise SystemExit(1)
