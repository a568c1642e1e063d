"""Checks of integrity: unreadable data, and references to missing records.

A query runs only if it can have findings, which for most stores saves two thirds of the scans and plans. Data that is
small, or counted before, is processed in Python.
"""

from __future__ import annotations

from array import array
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from .views import Views

_Rows = list[dict[str, Any]]


def integrity(spark: SparkSession, views: Views) -> DataFrame:
    """List integrity errors, one row per finding; no row if there are none. All checksums are checked.

    kind      damaged     stretches of a container can't be read
              lost        a container is missing that the log has not given back
              no start    a message is on a queue, and its content begins nowhere
              incomplete  a message is on a queue, and a piece of its content is missing
              unfinished  operations of a prepared transaction are missing
              orphan      messages are on a queue that SQL does not know
    place     the container's file, the transaction's xid, or the queue
    lsn       where it begins: of the container, message or transaction
    end_lsn   of what is lost, where it ends
    count     stretches, messages or operations
    bytes     that can't be read
    what      the same in words
    """
    views = views.forgiving()
    damaged = spark.sql(
        """
        select 'damaged' as kind, file as place, container as lsn, container + :size as end_lsn,
               cast(damaged_blocks as bigint) as count, damaged_bytes as bytes,
               concat(damaged_blocks, ' stretches with ', damaged_bytes, ' bytes can not be read') as what
        from {checked} where damaged_blocks > 0
        """,
        args={"size": views.log.container_bytes}, checked=views.containers,
    )  # fmt: skip
    columns = "lsn,type,txn_id,queue_id,extra,payload"
    few = views.records(columns, "queue-delete,tx-prepare").toArrow().to_pylist()
    deletes = [row for row in few if row["type"] == "queue-delete"]
    prepares = [row for row in few if row["type"] == "tx-prepare"]
    rows = [
        ("lost", views.store, gap.first_lsn, gap.end_lsn, 1, gap.end_lsn - gap.first_lsn, "no container holds this")
        for gap in views.log.gaps if not gap.is_reclaimed
    ]  # fmt: skip
    rows += _unfinished(views, prepares) if prepares else []
    found = [damaged, _incomplete(spark, views)]
    if rows:
        found.append(spark.createDataFrame(rows, damaged.schema))
    puts = views.orphan_records.where("type = 'enqueue' and (flags & 16) = 0")
    if puts.take(1):
        found.append(_no_start(spark, views, puts, deletes))
    unknown = _unknown_queues(views)
    if unknown:
        found.append(_orphans(spark, views, unknown))
    return reduce(DataFrame.unionByName, found).orderBy("lsn", "kind", "place")


def _no_start(spark: SparkSession, views: Views, puts: DataFrame, deletes: _Rows) -> DataFrame:
    """Find enqueues (*puts*) that count, without a Start record of their message and without an end.

    Ends stay in the log as long as the records that they end, so an enqueue without one belongs to a live message.
    """
    cuts = [
        (row["queue_id"], row["extra"] or row["lsn"], array("Q", row["payload"] or b"").tolist()) for row in deletes
    ]
    return spark.sql(
        """
        with ends as (
            select message_id, extra as ended from {orphan_records}
            where type in ('dequeue', 'delete') and (flags & 16) = 0
        ),
        committed as (select txn_id from {transactions} where state = 'committed'),
        given as (
            select r.message_id, r.queue_id, coalesce(r.extra, r.lsn) as position, collect_set(r.lsn) as lsns
            from {puts} r left join committed t on t.txn_id = r.txn_id
            where r.txn_id is null or t.txn_id is not null
            group by all
        ),
        over as (
            select distinct p.message_id, p.queue_id, p.position from given p join ends e
            on e.message_id = p.message_id and (e.ended is null or array_contains(p.lsns, e.ended)
                                                or e.ended = p.message_id)
            union all
            select distinct p.message_id, p.queue_id, p.position from given p join {cuts} c
            on c.queue_id = p.queue_id and c.cut > p.position and not array_contains(c.kept, p.message_id)
        )
        select 'no start' as kind, concat('queue ', queue_id) as place, message_id as lsn,
               cast(null as bigint) as end_lsn, count(*) as count, cast(null as bigint) as bytes,
               concat('message ', message_id, ' is on it, and has no content') as what
        from given left anti join over using (message_id, queue_id, position) group by queue_id, message_id
        """,
        orphan_records=views.orphan_records, transactions=views.transactions, puts=puts,
        cuts=spark.createDataFrame(cuts, "queue_id bigint, cut bigint, kept array<bigint>"),
    )  # fmt: skip


def _incomplete(spark: SparkSession, views: Views) -> DataFrame:
    """Messages without a piece."""
    return spark.sql(
        """
        select 'incomplete' as kind, coalesce(queue, concat('queue ', queue_id)) as place, message_id as lsn,
               cast(null as bigint) as end_lsn, 1L as count, cast(null as bigint) as bytes,
               concat('of message ', message_id, ' only ', pieces, ' pieces are there') as what
        from {messages} where state = 'queued' and not complete
        """,
        messages=views.messages("message_id,queue,queue_id,state,complete,pieces"),
    )  # fmt: skip


def _unfinished(views: Views, prepares: _Rows) -> list[tuple[Any, ...]]:
    """Find prepared transactions with missing operations: each of *prepares* contains their number."""
    reported: dict[int, int] = {}
    for row in prepares:
        reported[row["txn_id"]] = max(reported.get(row["txn_id"], 0), row["extra"] or 0)
    waiting = views.transactions.where("state = 'prepared'").selectExpr("txn_id", "xid", "enqueues + dequeues as there")
    found: list[tuple[Any, ...]] = []
    for txn_id, xid, there in waiting.collect():
        many = reported.get(txn_id, there)
        if many != there:
            what = f"of {many} operations {there} are there"
            found.append(("unfinished", None if xid is None else xid.hex(), txn_id, None, many - there, None, what))
    return found


def _unknown_queues(views: Views) -> set[int]:
    """Return the queues with messages that SQL does not know; none without SQL, as for an archive."""
    known = {row["id"] for row in views.wiring() if row["kind"] in ("queue", "going-queue")}
    if not known:
        return set()
    held = views.live_set.selectExpr("explode(queue_ids) as queue_id").distinct().collect()
    return {row.queue_id for row in held} - known


def _orphans(spark: SparkSession, views: Views, unknown: set[int]) -> DataFrame:
    """Messages on queues that are *unknown* to SQL."""
    those = ",".join(map(str, sorted(unknown)))
    places = views.places("message_id,queue_id,end").where(f"end is null and queue_id in ({those})")
    return spark.sql(
        """
        select 'orphan' as kind, concat('queue ', place.queue_id) as place, min(message_id) as lsn,
               cast(null as bigint) as end_lsn, count(*) as count, cast(null as bigint) as bytes,
               concat(count(*), ' messages are on a queue that SQL does not know') as what
        from {places} place group by place.queue_id
        """,
        places=places,
    )
