//! Kafka connections, metadata and one-round-trip calls.
