"""One client does not stall the others: round trips, a steady producer and the broker's memory beside attacks.

The attacks are in the `CASES` of the modules that are imported here; `isolation` tells how to add one.
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
"""At most. The yardstick is measured before the attack, so a load that begins in between looks like an impact: a run
beside other tests measured x17 once where the next measurement on the same code was x1.0. An attack that stalls others
does so each time."""


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
