"""A group of two kafka-python consumers on whatever broker stands at the given address.

    kafka_python_group.py HOST:PORT

Creates a topic, produces 1 000 records, consumes them through the group, commits. Every record must come exactly once
and the committed offsets must be the ends of the partitions. Exits 0 with a summary, 1 with what went wrong.
"""

import sys
import threading
import time
import uuid

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

PARTITIONS = 4
RECORDS = 1000
STEP_SECONDS = 30


class Member(threading.Thread):
    """A consumer in a thread of its own, as kafka-python's rebalances want it."""

    def __init__(self, bootstrap, group, topic, number):
        super().__init__(daemon=True)
        self.settings = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "client_id": f"kafka-python-{number}",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 10000,
            "heartbeat_interval_ms": 500,
        }
        self.topic = topic
        self.over = threading.Event()
        self.owned = set()
        self.seen = []
        self.problem = None

    def run(self):
        try:
            consumer = KafkaConsumer(self.topic, **self.settings)
            while not self.over.is_set():
                polled = consumer.poll(timeout_ms=100)
                for records in polled.values():
                    self.seen.extend((record.partition, record.offset, record.value) for record in records)
                if polled:
                    # At once: what is not committed when the other one leaves comes again.
                    consumer.commit()
                self.owned = {place.partition for place in consumer.assignment()}
            consumer.close()
        except Exception as problem:  # told by the main thread
            self.problem = problem


def until(what, members, condition):
    deadline = time.monotonic() + STEP_SECONDS
    while not condition():
        failed = [member.problem for member in members if member.problem]
        if failed:
            sys.exit(f"FAILED: {failed[0]!r}")
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: not within {STEP_SECONDS} s: {what}")
        time.sleep(0.05)


def main():
    bootstrap = sys.argv[1]
    token = uuid.uuid4().hex[:8]
    topic, group = f"kafka-python-{token}", f"kafka-python-group-{token}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])

    members = [Member(bootstrap, group, topic, number) for number in (1, 2)]
    for member in members:
        member.start()
    until("each has half", members, lambda: all(len(m.owned) == 2 for m in members) and len(set.union(*[m.owned for m in members])) == 4)

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
    for number in range(RECORDS):
        producer.send(topic, key=b"key-%d" % number, value=b"%d" % number, partition=number % PARTITIONS)
    producer.flush(STEP_SECONDS)
    producer.close()

    until("all records", members, lambda: sum(len(m.seen) for m in members) >= RECORDS)
    for member in members:
        member.over.set()
        member.join(STEP_SECONDS)
        if member.problem or member.is_alive():
            sys.exit(f"FAILED: a member did not end well: {member.problem!r}")
    seen = [record for member in members for record in member.seen]
    if len(seen) != RECORDS or sorted(int(value) for _, _, value in seen) != list(range(RECORDS)):
        sys.exit(f"FAILED: {len(seen)} records came, {len(set(seen))} of them different")

    onlooker = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    for partition in range(PARTITIONS):
        committed = onlooker.committed(TopicPartition(topic, partition))
        if committed != RECORDS // PARTITIONS:
            sys.exit(f"FAILED: partition {partition} is committed at {committed}")
    onlooker.close()
    admin.close()
    shares = " and ".join(str(len(member.seen)) for member in members)
    print(f"ok: kafka-python {kafka.__version__} at {bootstrap}: {RECORDS} records, {shares} of them by each member")


main()
