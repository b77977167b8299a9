"""Creates a topic unless it is there and writes records with known keys and values: record n has the value n.

    produce_known.py BOOTSTRAP TOPIC PARTITIONS RECORDS
"""

import sys

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic


def main():
    bootstrap, topic, partitions, records = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    try:
        created[topic].result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise

    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 30000})
    for n in range(records):
        on_delivery = lambda error, _: failed.append(error) if error else None
        producer.produce(topic, key=f"key-{n % 100}", value=str(n), on_delivery=on_delivery)
        producer.poll(0)
    left = producer.flush(60)
    if left or failed:
        sys.exit(f"{left} records without an answer, {len(failed)} failed: {failed[:1]}")
    print(f"produced {records} records to {topic}", flush=True)


main()
