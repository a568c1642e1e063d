"""Is the data whole? What can't be read, and what refers to something that is not there."""

from __future__ import annotations

from array import array

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from .views import Views


def integrity(spark: SparkSession, views: Views) -> DataFrame:
    """What is not as it should be, one row per finding; no row if all is well. All checksums are checked.

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
    gaps = [
        ("lost", views.store, gap.first_lsn, gap.end_lsn, 1, gap.end_lsn - gap.first_lsn, "no container holds this")
        for gap in views.log.gaps if not gap.is_reclaimed
    ]  # fmt: skip
    lost = spark.createDataFrame(gaps, damaged.schema)
    found = [damaged, lost, _no_start(spark, views), _of_messages(spark, views), _orphans(spark, views)]
    whole = found[0]
    for one in found[1:]:
        whole = whole.unionByName(one)
    return whole.orderBy("lsn", "kind", "place")


def _no_start(spark: SparkSession, views: Views) -> DataFrame:
    """Enqueues that count and that nothing ended, of messages that no Start record is of.

    Ends stay in the log as long as what they end, so an enqueue without one is of a message that lives.
    """
    deletes = views.records("lsn,queue_id,extra,payload", "queue-delete")
    return spark.sql(
        """
        with ends as (
            select message_id, extra as ended from {strays}
            where type in ('dequeue', 'delete') and (flags & 16) = 0
        ),
        cuts as (
            select queue_id, coalesce(extra, lsn) as cut, kept
            from {deletes}
        ),
        puts as (
            select r.message_id, r.queue_id, coalesce(r.extra, r.lsn) as position, collect_set(r.lsn) as lsns
            from {strays} r
            where r.type = 'enqueue' and (r.flags & 16) = 0
              and (r.txn_id is null or exists (
                  select 1 from {transactions} t where t.txn_id = r.txn_id and t.state = 'committed'))
            group by all
        ),
        over as (
            select distinct p.message_id, p.queue_id, p.position from puts p join ends e
            on e.message_id = p.message_id and (e.ended is null or array_contains(p.lsns, e.ended)
                                                or e.ended = p.message_id)
            union all
            select distinct p.message_id, p.queue_id, p.position from puts p join cuts
            on cuts.queue_id = p.queue_id and cuts.cut > p.position and not array_contains(kept, p.message_id)
        )
        select 'no start' as kind, concat('queue ', queue_id) as place, message_id as lsn,
               cast(null as bigint) as end_lsn, count(*) as count, cast(null as bigint) as bytes,
               concat('message ', message_id, ' is on it, and has no content') as what
        from puts left anti join over using (message_id, queue_id, position) group by queue_id, message_id
        """,
        deletes=deletes.withColumn("kept", f.udf(_kept, "array<bigint>", useArrow=False)("payload")),
        strays=views.strays, transactions=views.transactions,
    )  # fmt: skip


def _kept(payload: bytes | None) -> list[int]:
    """The messages that a queue-delete record leaves where they are."""
    return array("Q", payload or b"").tolist()


def _of_messages(spark: SparkSession, views: Views) -> DataFrame:
    """Messages without a piece, prepared transactions without an operation."""
    return spark.sql(
        """
        select 'incomplete' as kind, coalesce(queue, concat('queue ', queue_id)) as place, message_id as lsn,
               cast(null as bigint) as end_lsn, 1L as count, cast(null as bigint) as bytes,
               concat('of message ', message_id, ' only ', pieces, ' pieces are there') as what
        from {messages} where state = 'queued' and not complete
        union all
        select 'unfinished', lower(hex(t.xid)), t.txn_id, null, cast(p.told - t.enqueues - t.dequeues as bigint), null,
               concat('of ', p.told, ' operations ', t.enqueues + t.dequeues, ' are there')
        from {transactions} t join (
            select txn_id, max(coalesce(extra, 0)) as told from {prepares} group by txn_id
        ) p using (txn_id)
        where t.state = 'prepared' and p.told != t.enqueues + t.dequeues
        """,
        messages=views.messages("message_id,queue,queue_id,state,complete,pieces"),
        transactions=views.transactions, prepares=views.records("txn_id,extra", "tx-prepare"),
    )  # fmt: skip


def _orphans(spark: SparkSession, views: Views) -> DataFrame:
    """Queues with messages that SQL does not know; nothing is said where there is no SQL, as for an archive."""
    return spark.sql(
        """
        with known as (select id from {wiring} where kind in ('queue', 'going-queue'))
        select 'orphan' as kind, concat('queue ', place.queue_id) as place, min(message_id) as lsn,
               cast(null as bigint) as end_lsn, count(*) as count, cast(null as bigint) as bytes,
               concat(count(*), ' messages are on a queue that SQL does not know') as what
        from {places} place where place.end is null and place.queue_id not in (select id from known)
          and exists (select 1 from known)
        group by place.queue_id
        """,
        places=views.places("message_id,queue_id,end"), wiring=views.view("wiring"),
    )  # fmt: skip
