"""`cairnmq doctor` and `cairnmq support-bundle`: checks with remedies, and diagnostic data without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import click

from ...base.errors import CairnError
from ...base.texts import counted
from ...tools.diagnosis.certificate_checks import check_certificates
from ...tools.diagnosis.host_checks import check_host
from ...tools.diagnosis.report import Finding, Severity
from ...tools.diagnosis.store_checks import check_secret_files, check_store
from ...tools.diagnosis.support_bundle import SupportBundle
from ...tools.diagnosis.text_redaction import TextRedaction
from ..common.configured_command import DEFAULT_FILE, rows_of
from ..common.output import answering, bars, print_rows, print_table, printable
from ..common.units import Duration, HttpUrl
from ..options.common_options import GroupedCommand, output_options
from .broker import broker
from .broker_options import checked_options
from .settings import BrokerSettings
from .unknown_variables import unknown_variables

STATUSES = {Severity.OK: 0, Severity.WARNING: 1, Severity.ERROR: 3}
"""The exit statuses; 2 is that of a wrong call."""
_STYLES = {Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
_PROTECTED_FILES = ("acl_file", "tls_ca", "tls_crl")
_SECRET_FILES = ("tls_key", "users_file", "metrics_token_file", "connect_to_password_file", "secrets_dir")
_SECRET_NAMES = ("PASS", "SECRET", "TOKEN", "KEY", "CREDENTIAL")
_MOST_SECRET_BYTES = 64 << 10
_REFERENCE = re.compile(r"[?&]password-(env|file)=([^&]+)")
_store = click.argument("store", metavar="[STORE]", required=False, type=click.Path())
_config = click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), envvar="CAIRNMQ_CONFIG",
                       help=f"Configuration file of the broker.  [default: {DEFAULT_FILE} if it exists]")  # fmt: skip
_seconds = click.option("--seconds", default="1s", show_default=True, type=Duration(0, 60),
                        help="Measure syncs for this time; 0: don't.")  # fmt: skip


class _Configuration:
    """The configuration that a broker started here would have, as far as it is valid."""

    def __init__(self, config: str | None) -> None:
        config = config or (DEFAULT_FILE if os.path.isfile(DEFAULT_FILE) else None)
        self.file = config or ""
        self.finding = Finding("configuration", Severity.OK, f"valid: {config or 'defaults and environment'}")
        self.settings: BrokerSettings | None = None
        self.rows: list[dict[str, Any]] = []
        try:
            with broker.make_context("broker", ["--config", config] if config else []) as context:
                self.rows = rows_of(context)
                self.settings = BrokerSettings(**context.params)
                checked_options(self.settings)
        except (click.ClickException, CairnError) as error:
            text = error.format_message() if isinstance(error, click.ClickException) else str(error)
            given = self.settings
            if given is None or given.store_dir is not None or given.store == "memory":
                self.finding = Finding("configuration", Severity.ERROR, text, "see `cairnmq config check`")

    def value(self, name: str) -> str:
        return str(getattr(self.settings, name, None) or "")

    def check(self) -> Iterator[Finding]:
        yield self.finding
        for warning in unknown_variables(broker, getattr(self.settings, "connect_to", ())):
            yield Finding("configuration", Severity.WARNING, warning, "correct or unset the variable")
        keyed = [] if self.value("tls_key") else [self.value("tls_cert")]
        secret = [*map(self.value, _SECRET_FILES), *keyed, *self.connector_files()]
        yield from check_secret_files(filter(None, secret))
        yield from check_secret_files(filter(None, [*map(self.value, _PROTECTED_FILES), self.file]), is_secret=False)
        for name in ("tls_cert", "tls_ca"):
            if self.value(name):
                yield from check_certificates(self.value(name), datetime.now(UTC))

    def connector_files(self) -> list[str]:
        """Return the files of passwords and keys that the URLs of connectors name."""
        files = []
        for url in getattr(self.settings, "connect_to", ()):
            named = dict(parse_qsl(urlsplit(url).query))
            files += [named.get("password-file", ""), named.get("key", "") or named.get("cert", "")]
        return [path for path in files if path]

    def secrets(self) -> Iterator[str]:
        """Return the secrets that the configuration and the environment name, for redaction."""
        for name, value in os.environ.items():
            if any(part in name.upper() for part in _SECRET_NAMES):
                yield value
        references = [found for url in getattr(self.settings, "connect_to", ()) for found in _REFERENCE.findall(url)]
        yield from (os.environ.get(name, "") for kind, name in references if kind == "env")
        files = [path for kind, path in references if kind == "file"]
        for place in (*filter(None, map(self.value, _SECRET_FILES)), *files):
            for path in Path(place).rglob("*") if os.path.isdir(place) else [Path(place)]:
                if path.is_file() and path.stat().st_size <= _MOST_SECRET_BYTES:
                    text = path.read_text(errors="replace")
                    yield text.strip()
                    yield from text.splitlines()


def _check(store: str | None, configuration: _Configuration, seconds: float) -> list[Finding]:
    directory = store or configuration.value("store_dir")
    found = [*check_host(), *configuration.check()]
    if directory:
        with bars() as progress:
            found += check_store(directory, seconds, progress)
    return sorted(found, key=lambda one: -one.severity)


@click.command("doctor", cls=GroupedCommand, short_help="Check the host and a store", example="doctor ./data")
@_store
@_config
@_seconds
@output_options
@answering
def doctor(store: str | None, config: str | None, seconds: float, output_format: str) -> int:
    """Check the host, the configuration of the broker and STORE, and print findings with remedies.

    STORE is the store directory, by default that of the configuration. Nothing of a store is changed, and a broker may
    run on it. Run it as the user of the broker. The exit status is 0 without problems, 1 with warnings, 3 with errors.
    """
    found = _check(store, _Configuration(config), seconds)
    if not print_rows([one.fields() for one in found], Finding._fields, output_format):
        columns = ("severity", "check", "finding", "remedy")
        rows = [
            [(one.severity.name, _STYLES.get(one.severity, "")),
             *((printable(cell), "") for cell in (one.check, one.text, one.remedy))]
            for one in found
        ]
        print_table(rows, columns, prose=("finding", "remedy"))
    return STATUSES[max(one.severity for one in found)]


@click.command("support-bundle", short_help="Collect diagnostic data")
@_store
@_config
@_seconds
@click.option("--log", metavar="FILE", type=click.Path(dir_okay=False), help="Log of the broker.  [default: --log-file "
              "of the configuration]")  # fmt: skip
@click.option("--metrics", type=HttpUrl("http://127.0.0.1:9419/metrics"), metavar="URL",
              help="Include a scrape of this URL.")  # fmt: skip
@click.option("--to", "target", metavar="FILE", required=True, type=click.Path(dir_okay=False),
              help="The archive to create (tar.gz).")  # fmt: skip
@answering
def support_bundle(
    store: str | None, config: str | None, seconds: float, log: str | None, metrics: str | None, target: str
) -> None:
    """Write diagnostic data of the host, the configuration and STORE to an archive, without secrets.

    It contains findings of `cairnmq doctor`, versions, options, sizes of files and the end of the log. Passwords,
    tokens, keys and credentials of URLs are removed. The contents of messages are never read.

    \b
    Example:
      cairnmq support-bundle ./data --to support.tar.gz
    """
    configuration = _Configuration(config)
    directory = store or configuration.value("store_dir")
    with SupportBundle(target, TextRedaction(configuration.secrets())) as bundle:
        bundle.add_json("doctor.json", [one.fields() for one in _check(store, configuration, seconds)])
        bundle.add_json("configuration.json", configuration.rows)
        bundle.add_system()
        if directory and os.path.isdir(directory):
            bundle.add_store(directory)
        if path := log or configuration.value("log_file"):
            bundle.add_file("log.txt", path)
        if metrics:
            bundle.add_metrics(metrics)
        bundle.finish(["Names of queues may be in the log and the metrics: look through them before you send them."])
    click.echo(f"{printable(target)}: {counted(len(bundle.members), 'file')}; look through them before you send them")
