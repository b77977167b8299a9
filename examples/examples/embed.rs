//! A supervised member in an application: totals per key, restarted fresh when it ends for good.
//!
//! `cargo run -p kohort-examples --example embed` with a broker on localhost:9092, for example
//! `cargo run -- broker --topic orders:4`.

use kohort::supervisor::Supervisor;
use kohort::{ConsumerGroup, Context, Handler, MemberEvent, Record};
use std::{collections::HashMap, convert::Infallible, error::Error, time::Duration};
use tokio::signal::{ctrl_c, unix};

#[derive(Default)]
struct Orders {
    totals: HashMap<Vec<u8>, u64>, // one value for each assigned partition
}

impl Handler for Orders {
    type Error = Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        *self.totals.entry(record.key.unwrap_or_default().to_vec()).or_default() += 1;
        println!("{} at {}: {} keys", cx.partition(), record.offset, self.totals.len());
        Ok(()) // only now may it be committed
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let orders = ConsumerGroup::builder("orders-service", ["orders"])
        .bootstrap_servers(["localhost:9092"])
        .handler(|_partition| Orders::default())
        .build()?;
    let mut events = orders.events();
    let app = Supervisor::one_for_one()
        .intensity(5, Duration::from_secs(600))
        .child(orders.child_spec("orders")?)
        .start()
        .await?;
    let mut terminate = unix::signal(unix::SignalKind::terminate())?;
    loop {
        tokio::select! {
            Some(event) = events.next() => match event {
                MemberEvent::Unreachable { reason, .. } => eprintln!("still trying: {reason}"),
                MemberEvent::Terminated { class, reason, .. } => eprintln!("terminated [{class}]: {reason}"),
                _ => {}
            },
            _ = ctrl_c() => break,
            _ = terminate.recv() => break,
        }
    }
    app.shutdown().await; // handled work is committed, the group is left
    Ok(())
}
