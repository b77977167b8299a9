//! `kohort broker`: the embedded broker as a process.

use kohort_broker::{Broker, BrokerError};

use crate::exit::CliError;
use crate::signals::Stop;
use crate::{style, units};

/// Serve an in-memory Kafka broker until stopped
///
/// When it accepts connections it prints one line on stdout: `kohort broker ready on HOST:PORT`. Everything is
/// kept in memory and is gone when it ends. It is made for tests and trials, not for production.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    listen: String,
    /// A topic to create (repeatable); without a number it has one partition
    #[arg(long, value_name = "NAME:PARTITIONS", value_parser = units::topic)]
    topic: Vec<(String, i32)>,
    /// Do not create a topic because a client asks for it
    #[arg(long)]
    no_auto_create: bool,
}

pub(crate) async fn run(args: Args, mut stop: Stop) -> Result<(), CliError> {
    let mut builder = Broker::builder().listen(&args.listen).auto_create_topics(!args.no_auto_create);
    for (name, partitions) in &args.topic {
        builder = builder.topic(name, *partitions);
    }
    let broker = builder.start().await.map_err(|error| match error {
        BrokerError::AddressInUse { .. } => CliError::Other(format!("--listen {error}")),
        other => CliError::Usage(other.to_string()),
    })?;
    let ready = style::print(&format!("kohort broker ready on {}", broker.bootstrap_servers().join(",")));
    if ready.is_ok() {
        stop.asked().await;
    }
    broker.stop().await;
    ready.map_err(|error| CliError::io("writing to stdout", error))
}
