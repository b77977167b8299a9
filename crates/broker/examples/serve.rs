//! A broker that runs until it is interrupted: `cargo run -p kohort-broker --example serve -- 127.0.0.1:9092`. Prints
//! one line, `ready HOST:PORT`, when it can be connected to.

use std::error::Error;

use kohort_broker::Broker;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9092".to_owned());
    let broker = Broker::builder().listen(address).start().await?;
    println!("ready {}", broker.bootstrap_servers().join(","));
    tokio::signal::ctrl_c().await?;
    broker.stop().await;
    Ok(())
}
