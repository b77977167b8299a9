//! Typed telemetry events with bridges to tracing and metrics.
