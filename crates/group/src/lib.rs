//! The Kafka group protocol as two pure state machines.
