//! A record as a line: text for people and pipes, JSON for programs.

use clap::ValueEnum;
use kohort::{Record, TopicPartition};
use serde_json::Value;

/// How records are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The value; before it key and separator, if there is a key
    Text,
    /// One JSON object with topic, partition, offset, timestamp, key, value and headers
    Json,
}

/// The record's line, with its newline.
pub(crate) fn line(
    format: Format,
    separator: &str,
    partition: &TopicPartition,
    record: &Record<'_>,
) -> Vec<u8> {
    let mut line = Vec::with_capacity(record.payload_len() + 128);
    match format {
        Format::Text => {
            if let Some(key) = record.key {
                line.extend_from_slice(key);
                line.extend_from_slice(separator.as_bytes());
            }
            line.extend_from_slice(record.value.unwrap_or_default());
        }
        Format::Json => json(&mut line, partition, record),
    }
    line.push(b'\n');
    line
}

/// Written piece by piece, so that the fields keep their order.
fn json(line: &mut Vec<u8>, partition: &TopicPartition, record: &Record<'_>) {
    line.extend_from_slice(b"{\"topic\":");
    push(line, &Value::from(&*partition.topic));
    line.extend_from_slice(
        format!(
            ",\"partition\":{},\"offset\":{},\"timestamp\":{},\"key\":",
            partition.partition, record.offset, record.timestamp
        )
        .as_bytes(),
    );
    push(line, &bytes(record.key));
    line.extend_from_slice(b",\"value\":");
    push(line, &bytes(record.value));
    line.extend_from_slice(b",\"headers\":[");
    for (index, header) in record.headers().enumerate() {
        line.extend_from_slice(if index > 0 { b",{\"key\":" } else { b"{\"key\":" });
        push(line, &bytes(Some(header.key)));
        line.extend_from_slice(b",\"value\":");
        push(line, &bytes(header.value));
        line.push(b'}');
    }
    line.extend_from_slice(b"]}");
}

fn push(line: &mut Vec<u8>, value: &Value) {
    line.extend_from_slice(value.to_string().as_bytes());
}

/// Text as a string, other bytes as `{"base64": "…"}`, none as null.
fn bytes(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
        None => Value::Null,
        Some((Ok(text), _)) => Value::from(text),
        Some((Err(_), bytes)) => serde_json::json!({ "base64": base64(bytes) }),
    }
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().enumerate().fold(0u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use kohort_protocol::records::{Compression, RecordBatch, RecordBatchBuilder};

    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let known = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, text) in known.iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), *text);
        }
        assert_eq!(base64(&[0xff, 0xfe]), "//4=");
    }

    #[test]
    fn json_keeps_every_byte() {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        let headers = [(&b"h"[..], Some(&b"1"[..])), (&b"h"[..], None)];
        builder.append(17, Some(b"k\"\n"), Some(&[0xff]), headers).unwrap();
        builder.append(17, None, None, std::iter::empty()).unwrap();
        let batch = RecordBatch::decode(&builder.build().unwrap(), 1 << 20).unwrap();
        let partition = TopicPartition::new("t", 3);
        let lines: Vec<String> = batch
            .iter()
            .map(|record| String::from_utf8(line(Format::Json, "\t", &partition, &record)).unwrap())
            .collect();
        assert_eq!(
            lines[0],
            "{\"topic\":\"t\",\"partition\":3,\"offset\":0,\"timestamp\":17,\"key\":\"k\\\"\\n\",\
             \"value\":{\"base64\":\"/w==\"},\"headers\":[{\"key\":\"h\",\"value\":\"1\"},{\"key\":\"h\",\"value\":null}]}\n"
        );
        assert!(lines[1].contains("\"key\":null,\"value\":null,\"headers\":[]"), "{}", lines[1]);
        let texts: Vec<Vec<u8>> =
            batch.iter().map(|record| line(Format::Text, "|", &partition, &record)).collect();
        assert_eq!(texts, [b"k\"\n|\xff\n".to_vec(), b"\n".to_vec()]);
    }
}
