//! ApiVersions, FindCoordinator and InitProducerId on the wire.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as kp;
use kp::api_versions_response::ApiVersion;
use kp::find_coordinator_response::Coordinator;
use kp::{BrokerId, ProducerId};

use super::{not_in_version, nullable_text, only, put, request, response, text, transactional_id};
use crate::messages::*;
use crate::reader::min;
use crate::{ApiKey, DecodeError, EncodeError, ErrorCode, Request, Response};

impl Request for ApiVersionsRequest {
    const API: ApiKey = ApiKey::ApiVersions;
    type Response = ApiVersionsResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            Ok(kp::ApiVersionsRequest::default()
                .with_client_software_name(text(&self.client_software_name))
                .with_client_software_version(text(&self.client_software_version)))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        if version < 3 {
            return Ok(Self::default());
        }
        let message = Self {
            client_software_name: r.string("client software name")?,
            client_software_version: r.string("client software version")?,
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

/// A broker answers a version it does not know in version 0, with the error and its ranges (KIP-511). So an answer
/// with that error is version 0 in both directions, whatever version was asked for.
impl Response for ApiVersionsResponse {
    const API: ApiKey = ApiKey::ApiVersions;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        let version = if self.error == ErrorCode::UnsupportedVersion { 0 } else { version };
        put(Self::API, version, buf, || {
            let apis = self
                .apis
                .iter()
                .map(|api| {
                    ApiVersion::default()
                        .with_api_key(api.key)
                        .with_min_version(api.min)
                        .with_max_version(api.max)
                })
                .collect();
            Ok(kp::ApiVersionsResponse::default().with_error_code(self.error.code()).with_api_keys(apis))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        let error = r.error_code("error code")?;
        if error == ErrorCode::UnsupportedVersion && version != 0 {
            return Self::decode(0, body);
        }
        let apis = r.list("api keys", min(6, 7), |r| {
            let range = ApiVersionRange {
                key: r.i16("api key")?,
                min: r.i16("min version")?,
                max: r.i16("max version")?,
            };
            r.tagged_fields()?;
            Ok(range)
        })?;
        if version >= 1 {
            r.i32("throttle time")?;
        }
        r.tagged_fields()?;
        Ok(Self { error, apis })
    }
}

impl Request for FindCoordinatorRequest {
    const API: ApiKey = ApiKey::FindCoordinator;
    type Response = FindCoordinatorResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            if version == 0 && self.key_type != 0 {
                let reason = "only groups have coordinators in version 0";
                return Err(not_in_version(Self::API, version, "key_type", reason));
            }
            let message = kp::FindCoordinatorRequest::default().with_key_type(self.key_type);
            if version >= 4 {
                return Ok(message.with_coordinator_keys(self.keys.iter().map(|key| text(key)).collect()));
            }
            Ok(message.with_key(text(only(&self.keys, Self::API, version, "keys")?)))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let mut keys = Vec::new();
        if version <= 3 {
            keys.push(r.string("key")?);
        }
        let key_type = if version >= 1 { r.i8("key type")? } else { 0 };
        if version >= 4 {
            keys = r.string_list("coordinator keys")?;
        }
        r.tagged_fields()?;
        Ok(Self { key_type, keys })
    }
}

impl Response for FindCoordinatorResponse {
    const API: ApiKey = ApiKey::FindCoordinator;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let message = kp::FindCoordinatorResponse::default();
            if version >= 4 {
                let coordinators = self
                    .coordinators
                    .iter()
                    .map(|coordinator| {
                        Coordinator::default()
                            .with_key(text(&coordinator.key))
                            .with_node_id(BrokerId(coordinator.node_id))
                            .with_host(text(&coordinator.host))
                            .with_port(coordinator.port)
                            .with_error_code(coordinator.error.code())
                            .with_error_message(nullable_text(coordinator.error_message.as_ref()))
                    })
                    .collect();
                return Ok(message.with_coordinators(coordinators));
            }
            let coordinator = only(&self.coordinators, Self::API, version, "coordinators")?;
            Ok(message
                .with_error_code(coordinator.error.code())
                .with_error_message(nullable_text(coordinator.error_message.as_ref()))
                .with_node_id(BrokerId(coordinator.node_id))
                .with_host(text(&coordinator.host))
                .with_port(coordinator.port))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 1 {
            r.i32("throttle time")?;
        }
        let coordinators = if version >= 4 {
            r.list("coordinators", min(14, 14), |r| {
                let coordinator = CoordinatorAddress {
                    key: r.string("key")?,
                    node_id: r.i32("node id")?,
                    host: r.string("host")?,
                    port: r.i32("port")?,
                    error: r.error_code("error code")?,
                    error_message: r.nullable_string("error message")?,
                };
                r.tagged_fields()?;
                Ok(coordinator)
            })?
        } else {
            let error = r.error_code("error code")?;
            let error_message = if version >= 1 { r.nullable_string("error message")? } else { None };
            vec![CoordinatorAddress {
                key: String::new(),
                node_id: r.i32("node id")?,
                host: r.string("host")?,
                port: r.i32("port")?,
                error,
                error_message,
            }]
        };
        r.tagged_fields()?;
        Ok(Self { coordinators })
    }
}

impl Request for InitProducerIdRequest {
    const API: ApiKey = ApiKey::InitProducerId;
    type Response = InitProducerIdResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let message = kp::InitProducerIdRequest::default()
                .with_transactional_id(transactional_id(self.transactional_id.as_ref()))
                .with_transaction_timeout_ms(self.transaction_timeout_ms);
            if version < 3 {
                return Ok(message);
            }
            Ok(message
                .with_producer_id(ProducerId(self.producer_id))
                .with_producer_epoch(self.producer_epoch))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let message = Self {
            transactional_id: r.nullable_string("transactional id")?,
            transaction_timeout_ms: r.i32("transaction timeout")?,
            producer_id: if version >= 3 { r.i64("producer id")? } else { -1 },
            producer_epoch: if version >= 3 { r.i16("producer epoch")? } else { -1 },
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Response for InitProducerIdResponse {
    const API: ApiKey = ApiKey::InitProducerId;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            Ok(kp::InitProducerIdResponse::default()
                .with_error_code(self.error.code())
                .with_producer_id(ProducerId(self.producer_id))
                .with_producer_epoch(self.producer_epoch))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        r.i32("throttle time")?;
        let message = Self {
            error: r.error_code("error code")?,
            producer_id: r.i64("producer id")?,
            producer_epoch: r.i16("producer epoch")?,
        };
        r.tagged_fields()?;
        Ok(message)
    }
}
