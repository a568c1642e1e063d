"""Tests of the selector grammar, by name and by rule, on messages encoded by proton.

A comment cites the sentence of the specification (Jakarta Messaging 3.1, 3.8.1) that a group of cases covers.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from proton import Message, char, decimal32, float32, symbol, timestamp, ubyte, ulong

from cairnmq.broker.selector.compiler import Selector

ID = UUID("12345678-1234-5678-1234-567812345678")


def message(**named: Any) -> Any:
    made = Message(body="x", durable=True, priority=7, id="ID:a-1", subject="order", correlation_id="c'1")
    made.properties = {
        "age": 25,
        "weight": 2500,
        "price": 9.5,
        "half": float32(0.5),
        "small": ubyte(3),
        "big": ulong(2**64 - 1),
        "least": -(2**63),
        "colour": "blue",
        "empty": "",
        "quote": "it's",
        "percent": "100%_\\",
        "country": "UK",
        "phone": "12993",
        "word": "lose",
        "yes": True,
        "no": False,
        "raw": b"blue",
        "uuid": ID,
        "sym": symbol("blue"),
        "ch": char("b"),
        "when": timestamp(1000),
        "dec": decimal32(1),
        "_under$1": 1,
        "größe": 42,
        "a.b": 5,
        "notable": True,
        "inside": "x",
        "zero": 0,
        "null_property": None,
        **named,
    }
    made.address, made.reply_to, made.user_id = "orders", "answers", b"alice"
    made.group_id, made.group_sequence, made.reply_to_group_id = "g", 3, "rg"
    made.content_type, made.content_encoding = symbol("text/plain"), symbol("gzip")
    made.creation_time, made.expiry_time, made.ttl, made.delivery_count = 1.5, 2.5, 4, 2
    return made


CONTENT = bytes(message().encode())
TRUE = """
yes
NOT no
(yes)
yes = TRUE
no = false
yes <> no
TRUE
NOT FALSE
not NOT yes
yes aNd nOt no
age = 25
age=25
25 = age
age <> 24
age > 24
age >= 25
age < 26
age <= 25
24 < age
26 > age
age = 25L
age = 25l
age = +25
-age = -25
- -25 = age
age = 0x19
age = 0X19L
age = 031
zero = 0
zero = 00
zero = -0.0
age = 25.0
age = 25.
age = 2.5e1
age = 2.5E+1
age = 250E-1
age = 25f
age = 25D
age = 0x1.9p4
half = .5
half = 0.5
price = 9.5
price > 9
price < 10
price <> 9
small = 3
small + 0.5 = 3.5
big > 9223372036854775807
least = -9223372036854775808
least = 0x8000000000000000
0xFFFFFFFFFFFFFFFF = -1
-0x8000000000000000 = least
9223372036854775807 + 1 = least
least - 1 = 9223372036854775807
age + 1 = 26
age - 1 = 24
age * 2 = 50
age / 2 = 12
-age / 2 = -12
age / 2.0 = 12.5
1 + 2 * 3 = 7
(1 + 2) * 3 = 9
10 - 3 - 2 = 5
100 / 10 / 5 = 2
2 * 3 + 4 * 5 = 26
age + price = 34.5
1 / 0.0 > 1e308
-1 / 0.0 < -1e308
0 / 0.0 <> 0
colour = 'blue'
'blue' = colour
colour <> 'red'
empty = ''
quote = 'it''s'
colour = sym
sym = 'blue'
ch = 'b'
when = 1000
_under$1 = 1
größe = 42
a.b = 5
notable
inside = 'x'
a.b = 5 AND inside = 'x'
age BETWEEN 15 AND 25
age BETWEEN 25 AND 30
age NOT BETWEEN 26 AND 30
age NOT BETWEEN 15 AND 19
age BETWEEN 24.5 AND 25.5
age + 1 BETWEEN age AND age * 2
age BETWEEN 20 AND 30 AND yes
age BETWEEN 20 AND 30 OR missing
NOT age BETWEEN 1 AND 2
country IN ('UK', 'US', 'France')
country IN ('UK')
country NOT IN ('US', 'France')
NOT country IN ('US')
age NOT IN ('25')
quote IN ('it''s')
phone LIKE '12%3'
word LIKE 'l_se'
colour LIKE 'blue'
colour LIKE '%'
colour LIKE 'b%'
colour LIKE '%e'
colour LIKE '%lu%'
colour LIKE '____'
colour LIKE '_%_'
empty LIKE ''
empty LIKE '%%'
quote LIKE 'it''_'
percent LIKE '100\\%%' ESCAPE '\\'
percent LIKE '100!%!_\\' ESCAPE '!'
percent LIKE '%\\\\' ESCAPE '\\'
colour NOT LIKE 'red%'
colour NOT LIKE 'Blue'
age NOT LIKE '25'
missing IS NULL
null_property IS NULL
colour IS NOT NULL
raw IS NOT NULL
(missing) IS NULL
empty IS NOT NULL
missing = 1 OR yes
yes OR missing = 1
NOT (no AND missing = 1)
missing NOT BETWEEN 1 AND 2 OR yes
age NOT BETWEEN missing AND 20
yes AND yes OR no AND no
no AND no OR yes
NOT no AND yes
NOT (yes AND no)
(age > 1) = TRUE
(age > 1) = yes
(yes OR no) AND NOT (no OR no)
JMSDeliveryMode = 'PERSISTENT'
JMSPriority = 7
JMSPriority > 4 AND JMSPriority BETWEEN 5 AND 9
JMSMessageID = 'ID:a-1'
JMSTimestamp = 1500
JMSCorrelationID = 'c''1'
JMSType = 'order'
JMSXGroupID = 'g'
JMSXGroupSeq = 3
JMSXUserID = 'alice'
JMSXDeliveryCount = 3
JMSRedelivered
amqp.message_id = 'ID:a-1'
amqp.user_id = 'alice'
amqp.to = 'orders'
amqp.subject = 'order'
amqp.reply_to = 'answers'
amqp.correlation_id LIKE 'c%'
amqp.content_type = 'text/plain'
amqp.content_encoding = 'gzip'
amqp.absolute_expiry_time = 2500
amqp.creation_time = 1500
amqp.group_id = 'g'
amqp.group_sequence = 3
amqp.reply_to_group_id = 'rg'
amqp.durable
amqp.delivery_mode <> 'NON_PERSISTENT'
amqp.priority = 7
amqp.ttl = 4000
amqp.delivery_count = 2
amqp.redelivered
NOT amqp.first_acquirer
amqp.subject = 'order' AND colour = 'blue' AND amqp.priority = 7
"""
NOT_TRUE = """
no
NOT yes
FALSE
age = 24
age <> 25
age > 25
age < 25
age = '25'
age <> '25'
colour = 1
colour <> 1
yes = 1
yes <> 1
yes = 'TRUE'
colour = TRUE
raw = 'blue'
raw <> 'blue'
uuid = 'x'
dec = 1
dec <> 1
colour = 'Blue'
COLOUR = 'blue'
colour > age
colour < country
yes > no
NOT yes > yes AND no
colour BETWEEN 1 AND 2
colour NOT BETWEEN 1 AND 2
age BETWEEN 26 AND 30
age BETWEEN 30 AND 20
age NOT BETWEEN 20 AND 30
age BETWEEN 1 AND missing
NOT age BETWEEN 1 AND missing
missing
NOT missing
missing = 1
missing <> 1
NOT missing = 1
missing = missing
missing <> missing
missing > 1
missing = 'x' AND yes
yes AND missing
missing OR no
NOT (missing OR no)
NOT (missing AND yes)
missing BETWEEN 1 AND 2
missing NOT BETWEEN 1 AND 2
missing IN ('x')
missing NOT IN ('x')
missing LIKE '%'
missing NOT LIKE '%'
missing + 1 = 1
missing IS NOT NULL
colour IS NULL
age IN ('25')
age LIKE '25'
country IN ('US', 'France')
country NOT IN ('UK')
phone LIKE '12%4'
word LIKE 'lse'
word LIKE 'l__se'
colour LIKE ''
colour LIKE 'lu'
colour LIKE 'b_e'
colour LIKE '%%x%%'
colour LIKE 'blue_'
colour LIKE 'Blue'
colour NOT LIKE 'b%'
percent LIKE '100\\_%' ESCAPE '\\'
word LIKE 'lo%ose'
colour + 1 = 2
yes + 1 = 2
age / 0 = 0
age / 0 <> 0
NOT age / 0 = 0
age / zero = 1
0 / 0.0 = 0 / 0.0
colour
NOT colour
age
NOT age
age AND yes
age AND no
yes AND no OR no AND yes
no OR no
JMSDeliveryMode = 'NON_PERSISTENT'
JMSPriority = 4
JMSXMissing = 1
JMS_custom IS NOT NULL
amqp.first_acquirer
"""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("text", lines(TRUE))
def test_it_takes_the_message(text: str) -> None:
    assert Selector(text).matches(CONTENT)


@pytest.mark.parametrize("text", lines(NOT_TRUE))
def test_it_does_not_take_the_message(text: str) -> None:
    """A selector does not match if its result is false or unknown."""
    assert not Selector(text).matches(CONTENT)


@pytest.mark.parametrize(
    ("value", "jms", "plain"),
    [
        ("abc", "ID:AMQP_NO_PREFIX:abc", "amqp.message_id = 'abc'"),
        ("ID:abc", "ID:abc", "amqp.message_id = 'ID:abc'"),
        ("ID:AMQP_UUID:x", "ID:AMQP_STRING:ID:AMQP_UUID:x", "amqp.message_id LIKE '%x'"),
        (ID, f"ID:AMQP_UUID:{ID}", f"amqp.message_id = '{ID}'"),
        (ulong(17), "ID:AMQP_ULONG:17", "amqp.message_id = 17"),
        (b"\x01\xab", "ID:AMQP_BINARY:01AB", "amqp.message_id IS NOT NULL"),
    ],
)
def test_ids_are_those_that_jms_clients_show(value: Any, jms: str, plain: str) -> None:
    content = bytes(Message(id=value, correlation_id=value).encode())
    assert Selector(f"JMSMessageID = '{jms}'").matches(content)
    assert Selector(plain).matches(content)
    expected = "abc" if value == "abc" else jms
    assert Selector(f"JMSCorrelationID = '{expected}'").matches(content)


def test_a_message_with_nothing_has_defaults_and_nulls() -> None:
    for content in (b"", b"\x00\x53\x77\x40"):
        assert Selector("JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT'").matches(content)
        for name in ("JMSMessageID", "JMSType", "JMSTimestamp", "JMSXUserID", "amqp.to", "amqp.ttl", "colour"):
            assert Selector(f"{name} IS NULL").matches(content)


def test_only_what_it_needs_is_read() -> None:
    """Broken application properties do not affect a selector without them; a selector that uses them does not match."""
    content = bytes(Message(subject="order", body=1).encode())
    broken = content.replace(b"\x00\x53\x77", b"\x00\x53\x74\xc1\x05\x02\xa1\x01\xff\x40\x00\x53\x77")
    assert Selector("JMSType = 'order'").matches(broken)
    assert not Selector("JMSType = 'order' AND colour IS NULL").matches(broken)
    assert Selector("JMSType = 'order' AND colour IS NULL").matches(content)
