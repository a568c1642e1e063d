"""Jobs about queues over time: depth, lifetimes, throughput; and how many queues a message is on."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from .views import Views


def bucket_of(column: str) -> str:
    """Return the SQL of the start of the interval that contains a time; the parameter `bucket_us` is its length."""
    return f"timestamp_micros(unix_micros({column}) - pmod(unix_micros({column}), :bucket_us))"


def depth(spark: SparkSession, views: Views) -> DataFrame:
    """Show the number of messages on each queue over time: one row for each time step in which it changed.

    queue_id, queue
    time     when the step began
    arrived  messages that came in the step
    left     messages that went
    depth    messages at its end
    peak     the most that there were at any moment of it, or before; what has one time happens at once
    exact    whether nothing is missing that could change the numbers; what left the log is missing without its archive

    Of messages whose beginning left the log the end is counted if it is still there: so from the last gap on depths are
    right, unless a queue was purged since.
    """
    since = views.whole_from
    steps = views.spark.sql(
        """
        select * from (
            select place.queue_id, place.queue,
                   inline(array(struct(place.time as time, 1L as came, 0L as went),
                                struct(place.end_time as time, 0L as came, 1L as went)))
            from {places} place where place.end is null or place.end_time is not null
        ) where time is not null
        """,
        places=views.places("queue_id,queue,time,end_time,end"),
    )
    before = spark.sql("select 0L as queue_id, 0L as base where false")
    if since:
        alone = _ends_alone(spark, views, since)
        steps = steps.unionByName(alone)
        before = alone.groupBy("queue_id").agg(f.expr("sum(went - came)").alias("base"))
    return spark.sql(
        f"""
        with moments as (
            select queue_id, any_value(queue, true) as queue, time, {bucket_of("time")} as bucket,
                   sum(came) as arrived, sum(went) as left, sum(came - went) as step
            from {{steps}} group by queue_id, time
        ),
        running as (
            select *, sum(step) over (partition by queue_id, bucket order by time rows unbounded preceding) as inside
            from moments
        ),
        buckets as (
            select queue_id, any_value(queue, true) as queue, bucket as time, sum(arrived) as arrived,
                   sum(left) as left, sum(step) as change, greatest(max(inside), 0) as above
            from running group by queue_id, bucket
        ),
        total as (
            select b.*, coalesce(base, 0)
                   + sum(change) over (partition by queue_id order by time rows unbounded preceding) as depth
            from buckets b left join {{before}} using (queue_id)
        )
        select queue_id, queue, time, arrived, left, depth, depth - change + above as peak,
               time >= exact_from and :no_damage as exact
        from total cross join {{known}} order by queue_id, time
        """,
        args={"bucket_us": views.asked.bucket_s * 1_000_000, "no_damage": not views.asked.skip_damaged},
        steps=steps, before=before, known=_exact_from(spark, views, since),
    )  # fmt: skip


def _exact_from(spark: SparkSession, views: Views, since: int) -> DataFrame:
    """exact_from: the time from which on depths are right; a step before it may have begun too low."""
    if not since:
        return spark.sql("select timestamp'0001-01-01 00:00:00' as exact_from")
    new = views.view("records", columns="time", startingLsn=since, copies="none")
    ends_many = views.view("records", columns="time", types="queue-delete,delete", copies="all")
    return spark.sql(
        "select greatest((select min(time) from {new}), (select max(time) from {ends_many})) as exact_from",
        new=new, ends_many=ends_many,
    )  # fmt: skip


def _ends_alone(spark: SparkSession, views: Views, since: int) -> DataFrame:
    """Arrivals and departures of messages that have no Start record any more, by moments."""
    return spark.sql(
        """
        select r.queue_id, r.queue, r.time, count_if(r.type = 'enqueue') as came, count_if(r.type = 'dequeue') as went
        from {orphan_records} r
        where r.lsn >= :since and r.type in ('enqueue', 'dequeue') and not r.moved and (r.flags & 16) = 0
          and (r.txn_id is null or exists (
              select 1 from {transactions} t where t.txn_id = r.txn_id and t.state = 'committed'))
        group by r.queue_id, r.queue, r.time
        """,
        args={"since": since}, orphan_records=views.orphan_records, transactions=views.transactions,
    )  # fmt: skip


def lifetimes(spark: SparkSession, views: Views) -> DataFrame:
    """Show how long messages stayed on queues: one row per queue and hour in which messages were dequeued.

    queue_id, queue
    hour     when it began
    messages how many left
    p50_us, p90_us, p99_us, max_us   of their stays on the queue, in microseconds: nearest rank, no estimate
    mean_us

    Messages that left the log are counted with its archive only.
    """
    return spark.sql(
        """
        with stays as (
            select place.queue_id, place.queue, date_trunc('hour', place.end_time) as hour,
                   unix_micros(place.end_time) - unix_micros(place.time) as stay
            from {places} place where place.end = 'dequeued' and place.end_time is not null
        )
        select queue_id, any_value(queue, true) as queue, hour, count(*) as messages,
               cast(percentile_disc(0.5) within group (order by stay) as bigint) as p50_us,
               cast(percentile_disc(0.9) within group (order by stay) as bigint) as p90_us,
               cast(percentile_disc(0.99) within group (order by stay) as bigint) as p99_us,
               max(stay) as max_us, avg(stay) as mean_us
        from stays group by queue_id, hour order by queue_id, hour
        """,
        places=views.places("queue_id,queue,time,end_time,end"),
    )


def throughput(spark: SparkSession, views: Views) -> DataFrame:
    """Show the arrivals and departures of each queue: one row per queue and time step with any.

    queue_id, queue
    time           when the step began
    arrived        messages
    arrived_bytes  their contents
    left           messages, in whatever way
    left_bytes
    """
    return spark.sql(
        f"""
        with moves as (
            select place.queue_id, place.queue, size,
                   inline(array(struct(place.time as moment, 1 as came, 0 as went),
                                struct(place.end_time as moment, 0 as came, 1 as went)))
            from {{places}} place
        )
        select queue_id, any_value(queue, true) as queue, {bucket_of("moment")} as time, sum(came) as arrived,
               sum(came * size) as arrived_bytes, sum(went) as left, sum(went * size) as left_bytes
        from moves where moment is not null group by queue_id, 3 order by queue_id, time
        """,
        args={"bucket_us": views.asked.bucket_s * 1_000_000},
        places=views.places("queue_id,queue,time,end_time,size"),
    )  # fmt: skip


def fan_out(spark: SparkSession, views: Views) -> DataFrame:
    """Show the number of queues that messages were enqueued on.

    queues       so many different ones
    messages
    bytes        of their contents, each stored once
    saved_bytes  that a copy for each queue would have taken more
    """
    return spark.sql(
        """
        with each as (
            select size, size(array_distinct(transform(places, one -> one.queue_id))) as queues from {messages}
        )
        select queues, count(*) as messages, sum(size) as bytes, sum(size * greatest(queues - 1, 0)) as saved_bytes
        from each group by queues order by queues
        """,
        messages=views.messages("size,places"),
    )
