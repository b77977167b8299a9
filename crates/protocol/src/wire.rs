//! How each message stands on the wire, version by version. Encoding goes through `kafka-protocol`, decoding through
//! [`crate::reader`]. Called through the traits in [`crate::message`].

mod admin;
mod cluster;
mod data;
mod group;
mod metadata;
mod offsets;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{BrokerId, GroupId, TopicName, TransactionalId};
use kafka_protocol::protocol::{Encodable, StrBytes};

use crate::api::flexible;
use crate::error::{DecodeErrorKind, What};
use crate::reader::Reader;
use crate::{ApiKey, DecodeError, EncodeError};

/// Encodes what `build` makes, if the version is spoken.
fn put<E: Encodable>(
    api: ApiKey,
    version: i16,
    buf: &mut BytesMut,
    build: impl FnOnce() -> Result<E, EncodeError>,
) -> Result<(), EncodeError> {
    if !api.versions().contains(version) {
        return Err(EncodeError::UnsupportedVersion { api, version });
    }
    let message = build()?;
    let refused =
        |reason: &dyn std::fmt::Display| EncodeError::Refused { api, version, reason: reason.to_string() };
    let size = message.compute_size(version).map_err(|error| refused(&error))?;
    buf.reserve(size);
    message.encode(buf, version).map_err(|error| refused(&error))
}

/// The error for what a version cannot say.
fn not_in_version(api: ApiKey, version: i16, field: &'static str, reason: &'static str) -> EncodeError {
    EncodeError::NotInVersion { api, version, field, reason }
}

/// The only element of a list, for versions that have room for one.
fn only<'a, T>(list: &'a [T], api: ApiKey, version: i16, field: &'static str) -> Result<&'a T, EncodeError> {
    match list {
        [one] => Ok(one),
        _ => Err(not_in_version(api, version, field, "there must be exactly one")),
    }
}

/// A reader at the first byte of a body, if the version is spoken.
fn read(body: &Bytes, what: What) -> Result<Reader<'_>, DecodeError> {
    let (api, version) = match what {
        What::Request(api, version) | What::Response(api, version) => (api, version),
        _ => return Ok(Reader::new(body, what, false)),
    };
    let reader = Reader::new(body, what, flexible(api, version));
    if api.versions().contains(version) {
        Ok(reader)
    } else {
        Err(reader.error("version", DecodeErrorKind::UnsupportedVersion(version)))
    }
}

fn request(api: ApiKey, version: i16, body: &Bytes) -> Result<Reader<'_>, DecodeError> {
    read(body, What::Request(api, version))
}

fn response(api: ApiKey, version: i16, body: &Bytes) -> Result<Reader<'_>, DecodeError> {
    read(body, What::Response(api, version))
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn nullable_text(from: Option<&String>) -> Option<StrBytes> {
    from.map(|from| text(from))
}

/// A nullable text, dropped below the version that has it.
fn text_since(since: i16, version: i16, from: Option<&String>) -> Option<StrBytes> {
    nullable_text(from.filter(|_| version >= since))
}

fn group_id(id: &str) -> GroupId {
    GroupId(text(id))
}

fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

fn transactional_id(id: Option<&String>) -> Option<TransactionalId> {
    id.map(|id| TransactionalId(text(id)))
}

fn broker_ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}
