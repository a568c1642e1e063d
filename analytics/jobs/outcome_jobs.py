"""Jobs about outcomes: transactions, the reasons of departures, duplicates."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from .views import Views


def _carried(spark: SparkSession, views: Views) -> DataFrame:
    """txn_id, bytes: of the contents that each puts on queues. Those of distributed ones are stored before them."""
    return spark.sql(
        """
        with put as (
            select distinct txn_id, message_id from {records}
            where txn_id is not null and (flags & 1 = 1 or type = 'enqueue')
        )
        select put.txn_id, sum(m.size) as bytes from put join {messages} m using (message_id) group by put.txn_id
        """,
        records=views.records("txn_id,message_id,type,flags", "start,enqueue"),
        messages=views.messages("message_id,size"),
    )  # fmt: skip


def transactions(spark: SparkSession, views: Views) -> DataFrame:
    """Show transactions of more than one operation from prepare to outcome, per kind and hour in which they began.

    kind             local or distributed, of clients; copy, of the broker: a dead letter, an expiry or a move. A
                     transaction with an xid that was committed in one phase is written as a local one
    hour
    transactions     all of them
    committed, rolled_back, prepared, open, forgotten   by state; forgotten: no record shows it any more
    abort_rate       rolled back ones by those whose outcome is known; null of kinds whose rollbacks are not in the log
    operations       enqueues and dequeues
    bytes            of the contents that they put on queues
    p50_us, p99_us, max_us   from the first record to the outcome, in microseconds: nearest rank; null of kinds that are
                     written as a whole with their commit

    A transaction is written with its prepare, or its commit if it has none. Time before that is not in the log, nor are
    transactions that were rolled back before. The figures therefore show for how long coordinators keep locks.
    """
    return spark.sql(
        """
        with each as (
            select t.*, coalesce(bytes, 0) as bytes, date_trunc('hour', time) as hour,
                   if(kind = 'distributed', unix_micros(end_time) - unix_micros(time), null) as took
            from {transactions} t left join {carried} c on t.txn_id = c.txn_id
        )
        select kind, hour, count(*) as transactions, count_if(state = 'committed') as committed,
               count_if(state = 'rolled back') as rolled_back, count_if(state = 'prepared') as prepared,
               count_if(state = 'open') as open, count_if(state = 'forgotten') as forgotten,
               if(kind = 'distributed', count_if(state = 'rolled back')
                   / nullif(count_if(state in ('committed', 'rolled back')), 0), null) as abort_rate,
               sum(enqueues + dequeues) as operations, sum(bytes) as bytes,
               cast(percentile_disc(0.5) within group (order by took) as bigint) as p50_us,
               cast(percentile_disc(0.99) within group (order by took) as bigint) as p99_us, max(took) as max_us
        from each group by kind, hour order by kind, hour
        """,
        transactions=views.transactions, carried=_carried(spark, views),
    )  # fmt: skip


def in_doubt(spark: SparkSession, views: Views) -> DataFrame:
    """The prepared transactions that wait for their coordinator, the oldest first.

    txn_id, xid (in hexadecimal)
    prepared_time
    age_s          how long before the newest record of the log that was
    enqueues, dequeues, bytes   that it is going to do; of the contents that it is going to put on queues
    """
    return spark.sql(
        """
        select t.txn_id, lower(hex(xid)) as xid, prepared_time,
               (unix_micros(newest) - unix_micros(prepared_time)) / 1e6 as age_s, enqueues, dequeues,
               coalesce(bytes, 0) as bytes
        from {transactions} t left join {carried} c on t.txn_id = c.txn_id
            cross join (select max(last_time) as newest from {containers})
        where state = 'prepared' order by prepared_time, t.txn_id
        """,
        transactions=views.transactions, containers=views.containers, carried=_carried(spark, views),
    )  # fmt: skip


def duplicates(spark: SparkSession, views: Views) -> DataFrame:
    """Messages with the same AMQP message-id, which producers that send again make; the most frequent first.

    Only those that were on a queue: what was sent again after a rollback did not come twice. Copies that the broker
    made do not count: dead letters, expired and moved messages. They came with the transaction that took the original
    off its queue, or, if the log has that only as a copy, at the same microsecond.

    amqp_message_id
    messages       how many have it
    message_ids    which
    queues         that they were put on first
    contents       how many different ones they have, all sections compared; null in one of them means that some are
                   incomplete, which are not counted
    first_time, last_time
    """
    found = views.view(
        "messages",
        columns="message_id,time,txn_id,queue,queue_id,end_time,dequeue_reason,amqp_message_id,payload",
        maxPartitionBytes="256m",
    )
    return spark.sql(
        """
        with named as (select *, sha2(payload, 256) as content from {found}
                       where amqp_message_id is not null and queue_id is not null),
        several as (select amqp_message_id from named group by amqp_message_id having count(*) > 1),
        those as (select n.* from named n left semi join several s on n.amqp_message_id = s.amqp_message_id),
        originals as (
            select distinct amqp_message_id, end_time from those
            where dequeue_reason in ('rejected', 'delivery-limit', 'expired', 'moved')
        ),
        sent as (
            select n.* from those n
            left anti join (select txn_id from {transactions} where kind = 'copy') t on n.txn_id = t.txn_id
            left anti join originals o on n.amqp_message_id = o.amqp_message_id and n.time = o.end_time
        )
        select amqp_message_id, count(*) as messages, sort_array(collect_list(message_id)) as message_ids,
               sort_array(collect_set(queue)) as queues,
               count(distinct content) as contents, min(time) as first_time, max(time) as last_time
        from sent group by amqp_message_id having count(*) > 1 order by messages desc, amqp_message_id
        """,
        found=found, transactions=views.transactions,
    )  # fmt: skip


def redeliveries(spark: SparkSession, views: Views) -> DataFrame:
    """Signs of messages that were delivered more than once, as far as the log has any: deliveries are no records.

    queue_id, queue
    messages          that were on the queue
    over_recoveries   of these: the log was opened again while they were there, so delivery-count was raised
    failed_too_often  that left because their deliveries failed as often as the queue allows
    """
    return spark.sql(
        """
        select place.queue_id, any_value(place.queue, true) as queue, count(*) as messages,
               count_if(recoveries > 0) as over_recoveries,
               count_if(place.dequeue_reason = 'delivery-limit') as failed_too_often
        from {places} place group by place.queue_id order by place.queue_id
        """,
        places=views.places("queue_id,queue,recoveries,dequeue_reason"),
    )


def expiry(spark: SparkSession, views: Views) -> DataFrame:
    """Show the reasons other than acceptance for which messages left queues, one row per queue, hour and reason.

    queue_id, queue
    hour
    reason     rejected, delivery-limit, expired, moved, overflow, replaced; not recorded; or queue deleted, purged
    messages, bytes
    to_queues  where the commit that took them off put new messages: dead letters, expired and moved messages; without
               what left the log
    """
    return spark.sql(
        """
        with departed as (
            select place.queue_id, place.queue, date_trunc('hour', place.end_time) as hour, size, place.end_lsn,
                   if(place.end = 'dequeued', coalesce(place.dequeue_reason, 'not recorded'), place.end) as reason
            from {places} place where place.end_time is not null
              and not (place.end = 'dequeued' and place.dequeue_reason <=> 'accepted')
        ),
        by_commit as (
            select r.lsn as end_lsn, p.queue as to_queue
            from {records} r join {places} p on r.txn_id = p.txn_id
        ),
        letters as (
            select d.*, b.to_queues from departed d left join (
                select end_lsn, sort_array(collect_set(to_queue)) as to_queues
                from by_commit group by end_lsn
            ) b on d.end_lsn = b.end_lsn and d.reason in ('rejected', 'delivery-limit', 'expired', 'moved')
        )
        select queue_id, any_value(queue, true) as queue, hour, reason, count(*) as messages, sum(size) as bytes,
               sort_array(array_distinct(flatten(collect_set(to_queues)))) as to_queues
        from letters group by queue_id, hour, reason order by queue_id, hour, reason
        """,
        places=views.places("txn_id,queue_id,queue,size,end_lsn,end_time,end,dequeue_reason"),
        records=views.records("lsn,txn_id", "dequeue"),
    )  # fmt: skip
