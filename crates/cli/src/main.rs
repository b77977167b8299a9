//! The `kohort` command. It reads the arguments and runs one subcommand; each has a file of its own. `exit`
//! says with which code it ends.

mod bootstrap;
mod broker;
mod consume;
mod demo;
mod exit;
mod group;
mod lines;
mod narrate;
mod produce;
mod signals;
mod style;
mod units;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::CliError;

/// Supervised Kafka consumer-group members: try them, feed them, watch them.
///
/// Exit codes: 0 clean, 1 any other failure, 2 usage or configuration, 3 no broker reached in the time asked,
/// 4 the member ended for good, 5 it ended in a crash loop, 6 the close was forced, 141 stdout was closed by its
/// reader.
#[derive(Parser)]
#[command(name = "kohort", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Broker(broker::Args),
    Produce(produce::Args),
    Consume(consume::Args),
    Group(group::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    exit::log_to_stderr();
    match exit::on_a_runtime(run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(text) = error.text() {
                style::say(&text);
            }
            error.code()
        }
    }
}

async fn run(command: Command) -> Result<(), CliError> {
    let stop = signals::listen()?;
    match command {
        Command::Demo(args) => demo::run(args, stop).await,
        Command::Broker(args) => broker::run(args, stop).await,
        Command::Produce(args) => produce::run(args, stop).await,
        Command::Consume(args) => consume::run(args, stop).await,
        Command::Group(args) => group::run(args, stop).await,
    }
}
