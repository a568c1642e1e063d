"""Comparisons of a journal with the log of a producer, and with the store of another member."""

from __future__ import annotations

import csv
import os

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ...base.errors import CairnError
from ..spark.united import literal
from .views import Views, ViewsRequest

_KEYS = ("message_id", "message-id", "amqp_message_id", "id")


def trace_join(spark: SparkSession, views: Views) -> DataFrame:
    """Show the fate of the messages in the log of a producer; messages that never arrived come first.

    message_id   the ID in the log of the producer: the AMQP message-id
    sent         number of occurrences in the log of the producer
    arrived      number of messages in the journal with the ID
    status       never arrived, queued, in doubt, open, staged, removed: of several the first of these
    queues       the queues of the messages; for deleted ones their last queues
    message_ids  in the journal
    first_time   when the first arrived
    end_time     time of the last deletion
    end_reasons, dequeue_reasons   of the deleted messages

    The log is a file of CSV with a line of names, or of JSON objects, one per line (.json, .jsonl, .ndjson), with
    message_id, message-id, amqp_message_id or id. Lines without an ID are ignored; other fields do not matter. A
    message that left the journal is found only with its archive.
    """
    log = _producer_log(spark, views.asked)
    found = views.view(
        "messages", columns="message_id,time,state,places,end_time,end_reason,dequeue_reason,amqp_message_id",
        maxPartitionBytes="1g",
    )  # fmt: skip
    return spark.sql(
        """
        with sent as (select key, count(*) as sent from {log} where key is not null group by key),
        there as (
            select m.*, case state when 'queued' then 1 when 'in doubt' then 2 when 'open' then 3 when 'staged' then 4
                                   else 5 end as rank,
                   transform(if(state = 'queued', filter(places, one -> one.end is null), places),
                             one -> coalesce(one.queue, cast(one.queue_id as string))) as on_queues
            from {found} m
        )
        select key as message_id, any_value(sent) as sent, count(t.message_id) as arrived,
               coalesce(min_by(state, rank), 'never arrived') as status,
               array_sort(array_distinct(flatten(collect_list(on_queues)))) as queues,
               sort_array(collect_list(t.message_id)) as message_ids, min(time) as first_time,
               max(if(state = 'removed', end_time, null)) as end_time,
               sort_array(collect_set(end_reason)) as end_reasons,
               sort_array(collect_set(dequeue_reason)) as dequeue_reasons
        from sent left join there t on t.amqp_message_id = key
        group by key order by arrived > 0, key
        """,
        log=log, found=found,
    )  # fmt: skip


def _producer_log(spark: SparkSession, asked: ViewsRequest) -> DataFrame:
    """Return the log of the producer as a table with the one column `key`."""
    path = asked.need("trace-join", "producer_log")
    if ":" in os.path.basename(path):  # in a directory's it may be
        raise CairnError(path, "Spark reads no file with a colon in its name", "give it another name, or a link to it")
    is_json = path.endswith((".json", ".jsonl", ".ndjson"))
    try:
        if is_json:
            frame = spark.read.json(literal(path), primitivesAsString=True, mode="FAILFAST")
            names = frame.columns
        else:
            names = _first_line(path)
            columns = ", ".join(f"`{number}` string" for number in range(len(names)))
            # a quote in quotes is doubled, as RFC 4180 and most that write CSV have it; Spark's own way is another. To
            # find names or types itself it would take the path for a pattern.
            frame = spark.read.csv(
                literal(path), schema=columns or "none string", header=True, escape='"', multiLine=True
            )
    except (PySparkException, Py4JError) as error:
        reason = "not every line of it is a JSON object" if is_json else "it can't be read as CSV"
        raise CairnError(path, reason, "write CSV with a line of names, or JSON lines") from error
    for key in _KEYS:
        if key in names:
            return frame.selectExpr(f"`{key if is_json else names.index(key)}` as key")
    remedy = f"call the column with the message ids {_KEYS[0]}"
    raise CairnError(path, f"it has the columns {', '.join(names) or '(none)'}", remedy)


def _first_line(path: str) -> list[str]:
    """The names of a file of CSV."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
            return next(csv.reader(file), [])
    except OSError as error:
        raise CairnError(path, f"it can't be read ({error.strerror})", "name a file that can be") from error
    except csv.Error as error:
        raise CairnError(path, f"its first line is not CSV ({error})", "write CSV with a line of names") from error


def compare(spark: SparkSession, views: Views) -> DataFrame:
    """List the differences between the queues of two stores, message by message; no row without differences.

    queue        its name, or its id where there is no name
    place        of the message in its queue, counted from 0 at the head
    what         different content, only here, only there
    here, there  the message's ids
    here_bytes, there_bytes
    here_sha256, there_sha256   of the whole content

    The members of a cluster have different LSNs, and a member that was resynchronized has the received messages in
    reverse order on its disk. Queues are therefore compared by name, and contents by their numbers of occurrences, in
    any order. Two remaining messages at the same place are reported as different content. Internal queues with names
    like $cluster are ignored. If both stores have the same log, like copies and backups, messages are compared by their
    positions in it, which `place` then shows.
    """
    other = views.asked.need("compare", "other")
    there = Views(spark, other, ViewsRequest(skip_damaged=views.asked.skip_damaged))
    same_log = views.log.uuid == there.log.uuid
    return spark.sql(
        """
        with left_over as (
            select coalesce(h.queue, t.queue) as queue, coalesce(h.place, t.place) as place,
                   h.id as here, t.id as there, h.size as here_bytes, t.size as there_bytes,
                   h.sha256 as here_sha256, t.sha256 as there_sha256
            from {here} h full join {there} t on h.queue = t.queue and h.number = t.number and h.sha256 <=> t.sha256
            where h.id is null or t.id is null
        )
        select queue, place,
               case when max(there) is null then 'only here' when max(here) is null then 'only there'
                    else 'different content' end as what,
               max(here) as here, max(there) as there, max(here_bytes) as here_bytes, max(there_bytes) as there_bytes,
               max(here_sha256) as here_sha256, max(there_sha256) as there_sha256
        from left_over group by queue, place order by queue, place
        """,
        here=_contents(spark, views, same_log), there=_contents(spark, there, same_log),
    )  # fmt: skip


def _contents(spark: SparkSession, views: Views, same_log: bool) -> DataFrame:
    """queue, place, number, id, size, sha256 of each message on a queue; *number*: of several with one content."""
    found = views.view("messages", columns="message_id,size,places,payload", maxPartitionBytes="256m")
    place = "p.position" if same_log else "row_number() over (partition by p.queue_id order by p.position) - 1"
    number = "place" if same_log else "row_number() over (partition by queue, sha256 order by place)"
    those = "" if same_log else "where queue not like '$%'"
    return spark.sql(
        f"""
        with live as (
            select message_id, size, sha2(payload, 256) as sha256, explode(filter(places, one -> one.end is null)) as p
            from {{found}}
        ),
        placed as (
            select coalesce(p.queue, cast(p.queue_id as string)) as queue, cast({place} as bigint) as place,
                   message_id as id, size, sha256 from live
        )
        select *, {number} as number from placed {those}
        """,
        found=found,
    )
