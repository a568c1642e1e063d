"""Attacks of one client do not stall round trips and a steady producer, nor exhaust the memory of the broker.

The attacks are the `CASES` of the imported modules; `tests.harness.security.isolation` describes how to add an attack.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Tell
from tests.harness.security import flood_attacks, http_attacks, management_attacks, quota_attacks, selector_attacks
from tests.harness.security.isolation import Case, assert_isolated, measure

pytestmark = pytest.mark.quiet
MODULES = (flood_attacks, http_attacks, management_attacks, quota_attacks, selector_attacks)
CASES = tuple(case for module in MODULES for case in module.CASES)


MEASUREMENTS = 3
"""Maximum number of measurements of a case. The baseline is measured before the attack, so a load that begins in
between looks like an impact: next to other tests, x17 was measured once, and x1.0 in the next measurement of the same
code. An attack that stalls other clients has an impact in each measurement."""


@pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "-") for case in CASES])
def test_an_attack_leaves_others_their_share(case: Case, tmp_path: Path, tell: Tell) -> None:
    for number in range(1, MEASUREMENTS + 1):
        directory = tmp_path / str(number)
        directory.mkdir()
        impact = measure(case, directory)
        tell(f"{case.finding:4} {case.name:45} {impact}")
        try:
            assert_isolated(impact)
            return
        except AssertionError:
            if number == MEASUREMENTS:
                raise
