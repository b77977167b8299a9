//! A supervised Kafka consumer-group member.
