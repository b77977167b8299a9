//! A broker that runs until it is interrupted: `cargo run -p kohort-broker --example serve -- 127.0.0.1:9092 [NODES]`.
//! Prints one line, `ready HOST:PORT`, when it can be connected to; of several nodes it names each, by commas.

use std::error::Error;

use kohort_broker::Broker;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9092".to_owned());
    let nodes = std::env::args().nth(2).map_or(Ok(1), |nodes| nodes.parse())?;
    let broker = Broker::builder().listen(address).nodes(nodes).start().await?;
    println!("ready {}", broker.bootstrap_servers().join(","));
    tokio::signal::ctrl_c().await?;
    broker.stop().await;
    Ok(())
}
