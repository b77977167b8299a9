"""A member of a group until its input ends. Says what it has and gets, a JSON object a line.

    mixed_member.py BOOTSTRAP GROUP TOPIC
"""

import json
import sys
import threading

from confluent_kafka import Consumer


def say(**message):
    print(json.dumps(message), flush=True)


def main():
    bootstrap, group, topic = sys.argv[1:4]
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    owned = set()

    def assigned(_, partitions):
        owned.update(partition.partition for partition in partitions)
        say(assigned=sorted(owned))

    def revoked(_, partitions):
        owned.difference_update(partition.partition for partition in partitions)
        say(assigned=sorted(owned))

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "range",
        }
    )
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
    while not over.is_set():
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            sys.exit(f"{message.error()}")
        say(partition=message.partition(), offset=message.offset())
    consumer.close()


main()
