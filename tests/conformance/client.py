"""Runs the client scenarios of the official suite, and counts what they have looked at.

Called by client.sh, which installs the suite. Needs nothing but Python 3.10.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "client-checks.txt"
RUNS = {
    "2025-11-25": ["--requirements", "2025-11-25"],
    "2026-07-28": ["--requirements", "2026-07-28"],
    "backcompat": ["--suite", "backcompat"],
    "extensions": ["--suite", "extensions"],
    # No suite and no list of requirements has them.
    **{
        f"skills-{what}": ["--scenario", f"sep-2640-client-{what}"]
        for what in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")
    },
}
# Messages that the modern era does not have, and capabilities that the example does not declare.
SKIPPED = {("2026-07-28", "http-standard-headers"): 2, ("2026-07-28", "request-metadata"): 2}
SECONDS = 300


def expected() -> dict[tuple[str, str], int]:
    """The least number of checks that must have passed, by run and scenario."""
    lines = [line.split() for line in EXPECTED.read_text().splitlines()]
    return {(line[0], line[1]): int(line[2]) for line in lines if line and not line[0].startswith("#")}


def seen(directory: Path) -> dict[str, Counter[str]]:
    """How many checks have ended how, by scenario."""
    scenarios = {}
    for file in sorted(directory.rglob("checks.json")):
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", str(file.parent.relative_to(directory)))
        checks = json.loads(file.read_text())
        scenarios[name] = Counter(check["status"] for check in checks)
    return scenarios


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--cache", type=Path, required=True)
    arguments.add_argument("--write", action="store_true", help="write client-checks.txt anew")
    arguments.add_argument("client", type=Path)
    options = arguments.parse_args()
    suite = options.cache / "suite-0.2/node_modules/@modelcontextprotocol/conformance/dist/index.js"
    wanted = {} if options.write else expected()
    problems, rows = [], []
    for run, selection in RUNS.items():
        directory = options.cache / "results" / "client" / run
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        command = ["node", str(suite), "client", "--command", str(options.client), *selection]
        ended = subprocess.run(
            [*command, "-o", str(directory)], capture_output=True, text=True, timeout=SECONDS
        )
        (directory / "log.txt").write_text(ended.stdout + ended.stderr)
        if ended.returncode != 0:
            problems.append(f"{run}: the suite ended with {ended.returncode}; see {directory}/log.txt")
        scenarios = seen(directory)
        for name, statuses in scenarios.items():
            passed = statuses["SUCCESS"]
            rows.append(f"{run} {name} {passed}")
            for bad in ("FAILURE", "WARNING", "SKIPPED"):
                if statuses[bad] > (SKIPPED.get((run, name), 0) if bad == "SKIPPED" else 0):
                    problems.append(f"{run}: {name} has {statuses[bad]} {bad}")
            if not options.write and passed < wanted.get((run, name), 1):
                problems.append(f"{run}: {name} passed {passed} checks, {wanted.get((run, name), 1)} wanted")
        for missing in [name for (of, name) in wanted if of == run and name not in scenarios]:
            problems.append(f"{run}: {missing} was not run")
        total = sum(statuses["SUCCESS"] for statuses in scenarios.values())
        print(f"{run}: {len(scenarios)} scenarios, {total} checks passed")
    if options.write:
        head = "# Checks that must pass at least: run, scenario, number. Written by client.py --write.\n"
        EXPECTED.write_text(head + "\n".join(sorted(rows)) + "\n")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
