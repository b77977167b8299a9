//! Settings by their Kafka names, as text: `session.timeout.ms=6000`.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use kohort_client::Address;

use super::{AutoOffsetReset, Config, InstanceId, IsolationLevel, assignor, crash_bound, invalid};
use crate::error::ConfigError;

type Apply = fn(&mut Config, &str, &str) -> Result<(), ConfigError>;

/// Every property that is known, in order.
const PROPERTIES: &[(&str, Apply)] = &[
    ("auto.commit.interval.ms", |c, k, v| set(&mut c.membership.commit_interval, millis(k, v))),
    ("auto.offset.reset", |c, k, v| {
        c.auto_offset_reset = match v {
            "earliest" => AutoOffsetReset::Earliest,
            "latest" => AutoOffsetReset::Latest,
            "none" => AutoOffsetReset::None,
            _ => return Err(invalid(k, v, "must be earliest, latest or none")),
        };
        Ok(())
    }),
    ("bootstrap.servers", |c, k, v| set(&mut c.bootstrap_servers, addresses(k, v.split(',')))),
    ("client.id", |c, _, v| set(&mut c.client_id, Ok(v.to_owned()))),
    ("crash_rejoin_max_jitter", |c, k, v| set(&mut c.membership.crash_rejoin_max_jitter, millis(k, v))),
    ("crash_rejoin_max_restarts", |c, _, v| set(&mut c.membership.crash_rejoin_max_restarts, crash_bound(v))),
    ("crash_rejoin_window", |c, k, v| set(&mut c.membership.crash_rejoin_window, millis(k, v))),
    ("fetch.max.bytes", |c, k, v| set(&mut c.fetch_max_bytes, number(k, v))),
    ("fetch.max.wait.ms", |c, k, v| set(&mut c.fetch_max_wait, millis(k, v))),
    ("fetch.min.bytes", |c, k, v| set(&mut c.fetch_min_bytes, number(k, v))),
    ("group.instance.id", |c, _, v| set(&mut c.instance_id, Ok(Some(InstanceId::Value(v.to_owned()))))),
    ("heartbeat.interval.ms", |c, k, v| set(&mut c.membership.heartbeat_interval, millis(k, v))),
    ("isolation.level", |c, k, v| {
        c.isolation_level = match v {
            "read_uncommitted" => IsolationLevel::ReadUncommitted,
            "read_committed" => IsolationLevel::ReadCommitted,
            _ => return Err(invalid(k, v, "must be read_uncommitted or read_committed")),
        };
        Ok(())
    }),
    ("max.partition.fetch.bytes", |c, k, v| set(&mut c.max_partition_fetch_bytes, number(k, v))),
    ("metadata.max.age.ms", |c, k, v| set(&mut c.membership.metadata_max_age, millis(k, v))),
    ("partition.assignment.strategy", |c, k, v| {
        let names: Result<Vec<_>, _> = v
            .split(',')
            .map(|name| {
                assignor(name).ok_or_else(|| {
                    invalid(k, name.trim(), "must be range, roundrobin, sticky or cooperative-sticky")
                })
            })
            .collect();
        set(&mut c.membership.assignors, names)
    }),
    ("rebalance.timeout.ms", |c, k, v| set(&mut c.membership.rebalance_timeout, millis(k, v))),
    ("reconnect.backoff.max.ms", |c, k, v| set(&mut c.reconnect_backoff_max, millis(k, v))),
    ("reconnect.backoff.ms", |c, k, v| set(&mut c.reconnect_backoff, millis(k, v))),
    ("request.timeout.ms", |c, k, v| set(&mut c.membership.request_timeout, millis(k, v))),
    ("retry.backoff.max.ms", |c, k, v| set(&mut c.membership.backoff.max, millis(k, v))),
    ("retry.backoff.ms", |c, k, v| set(&mut c.membership.backoff.initial, millis(k, v))),
    ("session.timeout.ms", |c, k, v| {
        let session = millis(k, v)?;
        // Until it is set itself, the rebalance timeout follows the session timeout.
        if c.membership.rebalance_timeout == c.membership.session_timeout * 3 {
            c.membership.rebalance_timeout = session.saturating_mul(3);
        }
        c.membership.session_timeout = session;
        Ok(())
    }),
    ("socket.connection.setup.timeout.ms", |c, k, v| set(&mut c.connect_timeout, millis(k, v))),
];

pub(super) fn apply(config: &mut Config, key: &str, value: &str) -> Result<(), ConfigError> {
    let key = key.trim();
    match PROPERTIES.iter().find(|(known, _)| *known == key) {
        Some((_, apply)) => apply(config, key, value.trim()),
        None => Err(ConfigError::UnknownProperty { key: key.to_owned(), nearest: nearest(key) }),
    }
}

pub(super) fn addresses(
    setting: &str,
    texts: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Vec<Address>, ConfigError> {
    let texts = texts.into_iter();
    texts
        .map(|text| {
            let text = text.as_ref().trim();
            text.parse().map_err(|reason: String| invalid(setting, format!("{text:?}"), reason))
        })
        .collect()
}

fn set<T>(place: &mut T, value: Result<T, ConfigError>) -> Result<(), ConfigError> {
    *place = value?;
    Ok(())
}

fn number<T: FromStr<Err: Display>>(key: &str, value: &str) -> Result<T, ConfigError> {
    value.parse().map_err(|error: T::Err| {
        invalid(key, format!("{value:?}"), format!("must be a whole number: {error}"))
    })
}

fn millis(key: &str, value: &str) -> Result<Duration, ConfigError> {
    value.parse().map(Duration::from_millis).map_err(|error| {
        invalid(key, format!("{value:?}"), format!("must be a number of milliseconds: {error}"))
    })
}

/// The known property that takes the fewest edits, unless it takes too many to be what was meant.
/// The names of all that are known.
pub(crate) fn names() -> Vec<&'static str> {
    PROPERTIES.iter().map(|(name, _)| *name).collect()
}

fn nearest(key: &str) -> Option<String> {
    let (distance, best) = PROPERTIES.iter().map(|(known, _)| (edits(key, known), *known)).min()?;
    (distance <= key.len() / 3).then(|| best.to_owned())
}

fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(100).collect(), b.chars().collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let mut config = Config::new("g".into(), vec!["t".into()]);
        apply(&mut config, "bootstrap.servers", "localhost:9092, [::1]:9093").unwrap();
        config
    }

    #[test]
    fn properties_are_in_order_and_every_one_takes_a_value() {
        assert!(PROPERTIES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (key, _) in PROPERTIES {
            let mut config = config();
            let taken = ["1000", "earliest", "read_committed", "range"]
                .iter()
                .any(|value| apply(&mut config, key, value).is_ok());
            assert!(taken || *key == "bootstrap.servers", "{key}");
        }
    }

    #[test]
    fn an_unknown_property_names_the_nearest() {
        let error = apply(&mut config(), "session.timeout", "1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown property \"session.timeout\"; did you mean \"session.timeout.ms\"?"
        );
        let error = apply(&mut config(), "xyz", "1").unwrap_err();
        let told = error.to_string();
        assert!(told.starts_with("unknown property \"xyz\"; known are auto.commit.interval.ms, "), "{told}");
    }

    #[test]
    fn c_hb_01_an_error_names_the_setting_the_value_and_the_reason() {
        let error = apply(&mut config(), "session.timeout.ms", "6s").unwrap_err().to_string();
        assert!(
            error.contains("session.timeout.ms") && error.contains("6s") && error.contains("milliseconds"),
            "{error}"
        );
        let mut config = config();
        let spans = |config: &Config| {
            let membership = &config.membership;
            [membership.heartbeat_interval, membership.session_timeout, membership.rebalance_timeout]
        };
        assert_eq!(spans(&config), [3, 45, 135].map(Duration::from_secs), "the defaults");
        apply(&mut config, "session.timeout.ms", "6000").unwrap();
        apply(&mut config, "heartbeat.interval.ms", "5999").unwrap();
        config.check().unwrap();
        apply(&mut config, "heartbeat.interval.ms", "6000").unwrap();
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("heartbeat.interval.ms = 6s"), "{error}");
        assert_eq!(config.membership.rebalance_timeout, Duration::from_secs(18));
    }
}
