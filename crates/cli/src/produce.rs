//! `kohort produce`: lines become records.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use kohort::telemetry::Hub;
use kohort_client::{Client, ClientConfig, Producer, ProducerConfig, ProducerRecord};
use kohort_protocol::records::Compression;
use tokio::sync::mpsc;

use crate::exit::CliError;
use crate::lines::{self, Lines};
use crate::signals::Stop;
use crate::{bootstrap, style, units};

/// What is read before it is sent: so many records or bytes. One such load is sent, one waits and one is read.
const LOAD_RECORDS: usize = 10_000;
const LOAD_BYTES: usize = 4 << 20;

/// Produce lines from stdin or a file
///
/// Each line is one record, whatever its bytes. A line that contains the separator is split at its first place
/// into key and value; records of one key keep their order. At the end one line on stdout says how many records
/// were acknowledged. Any record that was not makes the exit code 1.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Brokers to begin with, separated by commas (repeatable)
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    bootstrap_server: Vec<String>,
    /// The topic; it is created where brokers create topics
    #[arg(long)]
    topic: String,
    /// Read this file instead of stdin
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// What stands between key and value
    #[arg(long, value_name = "TEXT", default_value = "\\t", value_parser = units::separator)]
    key_separator: String,
    /// How batches are compressed
    #[arg(long, value_enum, default_value_t = Codec::None)]
    compression: Codec,
    /// How long to wait for the first broker
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = units::duration)]
    connect_timeout: Duration,
    /// How long a record is tried for before it counts as failed
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = units::duration)]
    delivery_timeout: Duration,
}

#[derive(Clone, Copy, ValueEnum)]
enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl From<Codec> for Compression {
    fn from(codec: Codec) -> Self {
        match codec {
            Codec::None => Compression::None,
            Codec::Gzip => Compression::Gzip,
            Codec::Snappy => Compression::Snappy,
            Codec::Lz4 => Compression::Lz4,
            Codec::Zstd => Compression::Zstd,
        }
    }
}

/// Lines that belong together because they were there at the same time.
type Load = io::Result<Vec<Vec<u8>>>;

#[derive(Default)]
struct Tally {
    acknowledged: u64,
    failed: u64,
    first_error: Option<String>,
}

pub(crate) async fn run(args: Args, mut stop: Stop) -> Result<(), CliError> {
    let input: Box<dyn Read + Send> = match &args.file {
        Some(path) => Box::new(
            File::open(path)
                .map_err(|error| CliError::Usage(format!("--file {}: {error}", path.display())))?,
        ),
        None => Box::new(io::stdin()),
    };
    let client = Client::new(ClientConfig::new(bootstrap::addresses(&args.bootstrap_server)?), Hub::new());
    tokio::select! {
        reached = bootstrap::reach(&client, &args.topic, args.connect_timeout) => reached?,
        () = stop.asked() => return Ok(()),
    }
    let mut config = ProducerConfig::default();
    config.compression = args.compression.into();
    config.delivery_timeout = args.delivery_timeout;
    let mut producer = Producer::new(client, config);
    let mut loads = read(input);
    let mut tally = Tally::default();
    let mut broken = None;
    loop {
        let load = tokio::select! {
            biased;
            () = stop.asked() => break,
            load = loads.recv() => load,
        };
        match load {
            Some(Ok(lines)) => {
                if !send(&mut producer, &args, lines, &mut tally).await {
                    break;
                }
            }
            Some(Err(error)) => {
                broken = Some(CliError::io("reading the input", error));
                break;
            }
            None => break,
        }
    }
    conclude(&args, tally, broken)
}

/// Sends one load. False when all of it failed: what comes after it would fare no better.
async fn send(producer: &mut Producer, args: &Args, lines: Vec<Vec<u8>>, tally: &mut Tally) -> bool {
    let records = lines.into_iter().map(|line| {
        let (key, value) = lines::split(line, args.key_separator.as_bytes());
        ProducerRecord {
            topic: args.topic.clone(),
            key: key.map(Bytes::from),
            value: Some(Bytes::from(value)),
            ..ProducerRecord::default()
        }
    });
    let mut any = false;
    for result in producer.send(records.collect()).await {
        match result {
            Ok(_) => {
                any = true;
                tally.acknowledged += 1;
            }
            Err(error) => {
                tally.failed += 1;
                tally.first_error.get_or_insert_with(|| error.to_string());
            }
        }
    }
    any
}

fn conclude(args: &Args, tally: Tally, broken: Option<CliError>) -> Result<(), CliError> {
    let Tally { acknowledged, failed, first_error } = tally;
    let told =
        style::print(&format!("{acknowledged} records acknowledged, {failed} failed, topic {}", args.topic));
    match (first_error, broken) {
        (Some(first), _) => Err(CliError::Other(format!("{failed} records failed; the first: {first}"))),
        (None, Some(broken)) => Err(broken),
        // Everything was done but to say so.
        (None, None) => told.map_err(|error| CliError::io("writing to stdout", error)),
    }
}

/// Reads on a thread of its own, which may stay blocked on stdin when the process ends.
fn read(input: Box<dyn Read + Send>) -> mpsc::Receiver<Load> {
    let (give, loads) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut lines = Lines::new(input);
        let (mut load, mut bytes) = (Vec::new(), 0);
        loop {
            let (ended, broken) = match lines.next() {
                Ok(Some(line)) => {
                    bytes += line.len();
                    load.push(line);
                    (false, None)
                }
                Ok(None) => (true, None),
                Err(error) => (true, Some(error)),
            };
            let full = load.len() >= LOAD_RECORDS || bytes >= LOAD_BYTES;
            if !load.is_empty() && (ended || full || lines.may_wait()) {
                bytes = 0;
                if give.blocking_send(Ok(std::mem::take(&mut load))).is_err() {
                    return;
                }
            }
            if let Some(error) = broken {
                // Whoever received is gone if it cannot be told, and needs no telling.
                let _ = give.blocking_send(Err(error));
            }
            if ended {
                return;
            }
        }
    });
    loads
}
