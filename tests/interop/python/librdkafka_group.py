#!/usr/bin/env python3
"""A group of two librdkafka consumers on whatever broker stands at the given address.

Usage: librdkafka_group.py HOST:PORT

Creates a topic, waits until each of two consumers has half of it, produces 1 000 records with every codec, consumes
them, commits. Every record must come exactly once and the committed offsets must be the ends of the partitions.
Exits 0 with a summary, 1 with what went wrong, within about a minute.
"""

import signal
import sys
import time
import uuid

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition, libversion
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
RECORDS = 1000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
STEP_SECONDS = 20
ALL_SECONDS = 70


class Failed(Exception):
    """What went wrong, in words for people."""


def value_of(number):
    return str(number * 7 + 3).encode()


def create_topic(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=10, request_timeout=10)
    created[topic].result(timeout=STEP_SECONDS)
    # A cluster of several brokers may take a moment until each of them knows.
    deadline = time.monotonic() + STEP_SECONDS
    while time.monotonic() < deadline:
        found = admin.list_topics(topic, timeout=10).topics.get(topic)
        if found is not None and found.error is None and len(found.partitions) == PARTITIONS:
            return
        time.sleep(0.1)
    raise Failed(f"{topic} was created but its metadata never showed {PARTITIONS} partitions")


def open_consumer(bootstrap, group, number):
    return Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": f"librdkafka-{number}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
    })


def take(consumer, wait):
    message = consumer.poll(wait)
    if message is None:
        return None
    if message.error():
        raise Failed(f"a consumer got the error {message.error()}")
    return message


def wait_for_both(consumers):
    """Polls until the partitions are divided among the consumers."""
    deadline = time.monotonic() + STEP_SECONDS
    shares = []
    while time.monotonic() < deadline:
        for consumer in consumers:
            if take(consumer, 0.05) is not None:
                raise Failed("a record came before any was produced")
        shares = [sorted(place.partition for place in consumer.assignment()) for consumer in consumers]
        if all(shares) and sorted(sum(shares, [])) == list(range(PARTITIONS)):
            return shares
    raise Failed(f"the partitions were not divided among the consumers; they have {shares}")


def produce(bootstrap, topic):
    failures = []

    def delivered(error, _message):
        if error is not None:
            failures.append(str(error))

    for index, codec in enumerate(CODECS):
        producer = Producer({
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
            "message.timeout.ms": STEP_SECONDS * 1000,
        })
        for number in range(index, RECORDS, len(CODECS)):
            producer.produce(topic, key=f"key-{number}".encode(), value=value_of(number), on_delivery=delivered)
        left = producer.flush(STEP_SECONDS)
        if left:
            raise Failed(f"{left} records with codec {codec} were not acknowledged in time")
    if failures:
        raise Failed(f"{len(failures)} records were refused, the first with: {failures[0]}")


def consume(consumers):
    seen = {}
    counts = [0] * len(consumers)
    deadline = time.monotonic() + STEP_SECONDS
    # A moment longer than needed, so that a record that comes twice is noticed.
    quiet_since = None
    while time.monotonic() < deadline:
        for index, consumer in enumerate(consumers):
            message = take(consumer, 0.02)
            while message is not None:
                key = message.key().decode()
                if key in seen:
                    raise Failed(f"{key} came twice")
                seen[key] = int(message.value())
                counts[index] += 1
                message = take(consumer, 0)
        if len(seen) >= RECORDS:
            quiet_since = quiet_since or time.monotonic()
            if time.monotonic() - quiet_since > 0.5:
                break
    if len(seen) != RECORDS:
        raise Failed(f"{len(seen)} of {RECORDS} records came")
    expected = {f"key-{number}": int(value_of(number)) for number in range(RECORDS)}
    if seen != expected:
        wrong = [key for key in expected if seen.get(key) != expected[key]]
        raise Failed(f"{len(wrong)} values are wrong, the first is that of {wrong[0]}")
    return counts, sum(seen.values())


def check_committed(bootstrap, group, topic):
    onlooker = open_consumer(bootstrap, group, "onlooker")
    try:
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        total = 0
        for place in onlooker.committed(places, timeout=STEP_SECONDS):
            _low, end = onlooker.get_watermark_offsets(place, timeout=STEP_SECONDS)
            # A partition that no key fell into has nothing to commit.
            if place.offset != end and not (place.offset < 0 and end == 0):
                raise Failed(f"{topic}-{place.partition} is committed at {place.offset}, its end is {end}")
            total += end
        if total != RECORDS:
            raise Failed(f"the partitions end at {total} in all, not at {RECORDS}")
    finally:
        onlooker.close()


def run(bootstrap):
    begun = time.monotonic()
    token = uuid.uuid4().hex[:8]
    topic, group = f"interop-{token}", f"interop-group-{token}"
    create_topic(bootstrap, topic)
    consumers = [open_consumer(bootstrap, group, number) for number in (1, 2)]
    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        shares = wait_for_both(consumers)
        produce(bootstrap, topic)
        counts, total = consume(consumers)
        for consumer in consumers:
            consumer.commit(asynchronous=False)
    finally:
        for consumer in consumers:
            consumer.close()
    check_committed(bootstrap, group, topic)
    seconds = time.monotonic() - begun
    return (f"ok: librdkafka {libversion()[0]} at {bootstrap}: partitions {shares[0]} and {shares[1]}, "
            f"records {counts[0]} and {counts[1]}, sum {total}, {seconds:.1f} s")


def on_alarm(_signal, _frame):
    raise Failed(f"not done after {ALL_SECONDS} s")


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(ALL_SECONDS)
    try:
        print(run(sys.argv[1]))
    except (Failed, KafkaException) as error:
        print(f"FAILED at {sys.argv[1]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
