"""Runs regular tests under every sabotage, in one process: ``python driver.py RESULT.json``.

Each named test runs once as things are, then once under each sabotage that should break it, and once more
at the end, which shows that no sabotage left anything behind.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from sabotages import SABOTAGES

ROOT = Path(__file__).resolve().parents[2]


class Driver:
    """Replaces pytest's loop over the tests."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {"before": {}, "under": {}, "after": {}, "outdated": {}}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """The whole run."""
        for item in session.items:
            self.results["before"][item.nodeid] = failed(item)
        for name, sabotage in SABOTAGES.items():
            items = [item for item in session.items if covers(sabotage.tests, item.nodeid)]
            with pytest.MonkeyPatch.context() as patch:
                try:
                    sabotage.apply(patch)
                except Exception as error:
                    # The library has changed: the sabotage must be written anew.
                    self.results["outdated"][name] = repr(error)
                    continue
                self.results["under"][name] = {item.nodeid: failed(item) for item in items}
        for item in session.items:
            self.results["after"][item.nodeid] = failed(item)
        return True


def covers(tests: tuple[str, ...], nodeid: str) -> bool:
    """Whether a node is one of these tests, with any parameters."""
    return any(nodeid == test or nodeid.startswith(f"{test}[") for test in tests)


def failed(item: pytest.Item) -> str | None:
    """Run a test; the text of its failure, or None."""
    item._initrequest()  # type: ignore[attr-defined]
    reports = runtestprotocol(item, log=False, nextitem=None)
    texts = [str(report.longrepr) for report in reports if report.failed]
    return texts[0][-2000:] if texts else None


def main(result: Path) -> int:
    """Run, and write what happened."""
    driver = Driver()
    tests = sorted({test for sabotage in SABOTAGES.values() for test in sabotage.tests})
    arguments = [
        "-q",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
        *(f"{ROOT}/{test}" for test in tests),
    ]
    code = pytest.main(arguments, plugins=[driver])
    result.write_text(json.dumps(driver.results))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
