//! The first contact with a cluster: addresses as given, and a wait for the first broker that answers.

use std::time::Duration;

use kohort::Address;
use kohort_client::{Client, ClientError};
use tokio::time::Instant;

use crate::exit::CliError;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// One try takes no longer.
const TRY: Duration = Duration::from_secs(5);
/// A topic that is being created is there by then.
const CREATION: Duration = Duration::from_secs(5);

/// `host:port`, several separated by commas.
pub(crate) fn addresses(servers: &[String]) -> Result<Vec<Address>, CliError> {
    servers
        .iter()
        .flat_map(|list| list.split(','))
        .map(|server| {
            let server = server.trim();
            server.parse().map_err(|reason| CliError::Usage(format!("--bootstrap-server {server}: {reason}")))
        })
        .collect()
}

/// Asks for the topic until a broker answers, which creates the topic where brokers do so, and then until the
/// topic is there.
pub(crate) async fn reach(client: &Client, topic: &str, within: Duration) -> Result<(), CliError> {
    let mut deadline = Instant::now() + within;
    let mut answered = false;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let error = match client.metadata(&[topic.to_owned()], true, left.min(TRY)).await {
            Ok(_) if client.cluster().partition_count(topic).is_some_and(|count| count > 0) => return Ok(()),
            Ok(answer) => {
                if !std::mem::replace(&mut answered, true) {
                    deadline = Instant::now() + CREATION;
                }
                if Instant::now() + PAUSE >= deadline {
                    let code = answer.topics.first().map(|topic| topic.error.to_string()).unwrap_or_default();
                    return Err(CliError::Other(format!(
                        "topic {topic} cannot be produced to, and the broker did not create it: {code}"
                    )));
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => error,
        };
        if !error.is_retriable() {
            return Err(CliError::Other(error.to_string()));
        }
        if Instant::now() + PAUSE >= deadline {
            let tried = match error {
                ClientError::NoBroker { tried } => {
                    let tried: Vec<String> =
                        tried.iter().map(|(address, reason)| format!("{address} ({reason})")).collect();
                    format!("tried {}", tried.join(", "))
                }
                other => other.to_string(),
            };
            return Err(CliError::NoBroker { within, tried });
        }
        tokio::time::sleep(PAUSE).await;
    }
}
