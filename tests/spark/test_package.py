"""Tests of the public names of the package and of its lazy imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cairnmq.analytics.spark
from cairnmq.analytics.spark.session import journal


def test_a_journal_is_had_from_the_package() -> None:
    assert cairnmq.analytics.spark.journal is journal
    with pytest.raises(AttributeError, match=r"'cairnmq\.analytics\.spark' has no attribute 'jornal'"):
        cairnmq.analytics.spark.jornal  # type: ignore[attr-defined] # noqa: B018


def test_importing_the_package_imports_no_spark() -> None:
    program = (
        "import sys, cairnmq.analytics.spark; assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules\n"
        "from cairnmq.analytics.spark import journal; assert 'pyspark' in sys.modules and callable(journal)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_what_a_worker_imports_has_no_sql_and_no_amqp_engine() -> None:
    """A Spark worker does not import SQL and AMQP libraries, which would cost 0.3 s of CPU per worker."""
    program = (
        "import sys, cairnmq.analytics.spark.batch\n"
        "assert 'pyarrow' in sys.modules\n"
        "assert not {'sqlalchemy', 'alembic', 'lmdb', 'proton'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
