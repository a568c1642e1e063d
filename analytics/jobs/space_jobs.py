"""Jobs about space: what keeps the log from giving it back, and what writing costs."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ...journal.format.record import HEAD_BYTES
from .views import Views


def backlog(spark: SparkSession, views: Views) -> DataFrame:
    """Show the messages on each queue and the part of the log that they retain, the oldest first.

    queue_id, queue
    messages, bytes   what is on it
    oldest_id         the message at its head
    oldest_time       when that came to the queue
    age_s             how long before the newest record of the log that was
    containers        that hold something of its messages
    pinned_bytes      of these containers, whole
    alone_bytes       of those that hold nothing live of other queues
    """
    return spark.sql(
        """
        with live as (
            select place.queue_id, place.queue, place.position, place.time, message_id, size from {places} place
            where place.end is null
        ),
        newest as (select max(last_time) as newest from {containers}),
        held as (select distinct container, explode(queue_ids) as queue_id from {live_set}),
        shared as (select container, count(*) as queues from held group by container),
        pins as (
            select queue_id, count(*) as containers, count_if(queues = 1) as alone
            from held join shared using (container) group by queue_id
        )
        select queue_id, any_value(queue, true) as queue, count(*) as messages, sum(size) as bytes,
               min_by(message_id, position) as oldest_id, min_by(time, position) as oldest_time,
               (unix_micros(any_value(newest)) - unix_micros(min_by(time, position))) / 1e6 as age_s,
               any_value(pins.containers) as containers, any_value(pins.containers) * :size as pinned_bytes,
               any_value(pins.alone) * :size as alone_bytes
        from live join pins using (queue_id) cross join newest group by queue_id order by age_s desc, queue_id
        """,
        args={"size": views.log.container_bytes}, containers=views.containers, live_set=views.live_set,
        places=views.places("message_id,queue_id,queue,position,time,size,end"),
    )  # fmt: skip


def liveness(spark: SparkSession, views: Views) -> DataFrame:
    """Show the live part of each container of the log, the emptiest first.

    container   the LSN of its first byte
    file
    live_records, live_bytes   records that messages on queues, or in doubt, need; with their heads of 64 bytes
    share       of the container that is live
    messages    how many of these
    """
    return spark.sql(
        """
        with held as (
            select container, sum(records) as live_records, sum(bytes) as live_bytes, sum(messages) as messages
            from {live_set} group by container
        )
        select container, file, coalesce(live_records, 0) as live_records, coalesce(live_bytes, 0) as live_bytes,
               coalesce(live_bytes, 0) / :size as share, coalesce(messages, 0) as messages
        from {containers} left join held using (container) where not archived order by share, container
        """,
        args={"size": views.log.container_bytes}, containers=views.containers, live_set=views.live_set,
    )  # fmt: skip


def space(spark: SparkSession, views: Views) -> DataFrame:
    """Show the amount written: one row per hour in which containers were begun, and a last row, without hour, of all.

    hour
    containers           that were begun
    log_bytes            their size
    records, new_bytes   that said something new, with their heads of 64 bytes
    copies, copied_bytes that relocation wrote again
    write_amplification  all record bytes by new ones
    live_bytes           in the last row: of live records
    space_amplification  in the last row: bytes of the containers in the log by live ones
    """
    return spark.sql(
        """
        with written as (
            select container, count_if(not moved) as records, count_if(moved) as copies,
                   sum(if(moved, 0, size + :head)) as new_bytes, sum(if(moved, size + :head, 0)) as copied_bytes
            from {records} group by container
        ),
        hours as (
            select date_trunc('hour', begun) as hour, grouping(date_trunc('hour', begun)) as is_all,
                   count(*) as containers, count(*) * :size as log_bytes, count_if(not archived) * :size as held_bytes,
                   coalesce(sum(w.records), 0) as records, coalesce(sum(new_bytes), 0) as new_bytes,
                   coalesce(sum(copies), 0) as copies, coalesce(sum(copied_bytes), 0) as copied_bytes
            from {containers} left join written w using (container)
            group by rollup(date_trunc('hour', begun))
        ),
        live as (select coalesce(sum(bytes), 0) as live from {live_set})
        select hour, containers, log_bytes, records, new_bytes, copies, copied_bytes,
               (new_bytes + copied_bytes) / nullif(new_bytes, 0) as write_amplification,
               if(is_all = 1, live, null) as live_bytes,
               if(is_all = 1, held_bytes / nullif(live, 0), null) as space_amplification
        from hours cross join live order by is_all, hour
        """,
        args={"size": views.log.container_bytes, "head": HEAD_BYTES},
        records=views.records("container,moved,size"), containers=views.containers, live_set=views.live_set,
    )  # fmt: skip


def groups(spark: SparkSession, views: Views) -> DataFrame:
    """Show the number of records per block, the unit of writing and syncing: one row per time step.

    time               when the step began, by the earliest record of a block that is no copy; null: of copies alone
    blocks
    records, bytes     in these, copies too, with heads
    records_per_block
    """
    return spark.sql(
        """
        with blocks as (
            select block, min(if(moved, null, time)) as time, count(*) as records, sum(size + :head) as bytes
            from {records} group by block
        )
        select timestamp_micros(unix_micros(time) - pmod(unix_micros(time), :bucket_us)) as time,
               count(*) as blocks, sum(records) as records, sum(bytes) as bytes,
               sum(records) / count(*) as records_per_block
        from blocks group by 1 order by 1
        """,
        args={"bucket_us": views.asked.bucket_s * 1_000_000, "head": HEAD_BYTES},
        records=views.records("block,moved,time,size"),
    )  # fmt: skip
