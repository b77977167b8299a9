//! Bounded encoding and decoding of the Kafka protocol.
