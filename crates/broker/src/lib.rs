//! An embedded in-memory Kafka broker with a real group coordinator.
