"""A librdkafka member that says what happens to it, for the rebalance measurement. The lines are those that
`tests/src/bin/rebalance/line.rs` reads: microseconds since 1970, a word, what belongs to it.

    rebalance_member.py BOOTSTRAP GROUP TOPIC STRATEGY [GROUP_INSTANCE_ID]

Subscribes on a line `subscribe`, closes on a line `close`, ends with its input.
"""

import os
import sys
import threading
import time

from confluent_kafka import Consumer


def say(*words):
    # One write for a line, at once: what is measured is when.
    os.write(1, f"{time.time_ns() // 1000} {' '.join(words)}\n".encode())


def listed(partitions):
    return ",".join(str(one.partition) for one in partitions) or "-"


def main():
    bootstrap, group, topic, strategy = sys.argv[1:5]
    asked_to_subscribe, asked_to_close = threading.Event(), threading.Event()

    def obey():
        for line in sys.stdin:
            if line.startswith("subscribe"):
                asked_to_subscribe.set()
            elif line.startswith("close"):
                asked_to_close.set()
        # Whoever measures is gone; nobody waits for a close.
        os._exit(0)

    threading.Thread(target=obey, daemon=True).start()
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": strategy,
    }
    if len(sys.argv) > 5:
        settings["group.instance.id"] = sys.argv[5]

    say("ready")
    asked_to_subscribe.wait()
    say("subscribe")
    consumer = Consumer(settings)
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: say("assigned", "-", listed(partitions)),
        on_revoke=lambda _, partitions: say("revoked", listed(partitions)),
        on_lost=lambda _, partitions: say("revoked", listed(partitions)),
    )
    while not asked_to_close.is_set():
        message = consumer.poll(0.01)
        if message is not None and message.error():
            say("note", str(message.error()).replace("\n", " "))
    say("closing")
    consumer.close()
    say("closed")


main()
