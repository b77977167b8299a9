//! Values of arguments that are more than a number: durations, bounds, `NAME:PARTITIONS`, `key=value`.

use std::time::Duration;

use kohort::CrashBound;

/// `500ms`, `30s`, `2m`; a number alone is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim() {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("{other:?} is no unit; write 500ms, 30s or 2m")),
    };
    let number: f64 = number.parse().map_err(|_| "write a duration as 500ms, 30s or 2m".to_owned())?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}

/// A number, or `unlimited`.
pub(crate) fn bound(text: &str) -> Result<CrashBound, String> {
    match text {
        "unlimited" => Ok(CrashBound::Unlimited),
        number => number
            .parse()
            .map(CrashBound::Max)
            .map_err(|_| "write a number of restarts, or unlimited".to_owned()),
    }
}

/// `NAME:PARTITIONS`; `NAME` alone has one partition.
pub(crate) fn topic(text: &str) -> Result<(String, i32), String> {
    let (name, partitions) = text.rsplit_once(':').unwrap_or((text, "1"));
    match partitions.parse() {
        Ok(partitions) if partitions > 0 && !name.is_empty() => Ok((name.to_owned(), partitions)),
        Ok(_) if !name.is_empty() => Err("a topic has at least one partition".into()),
        _ => Err("write a topic as NAME:PARTITIONS, such as orders:4".into()),
    }
}

/// `key=value`.
pub(crate) fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("write a property as key=value, such as session.timeout.ms=10000".into()),
    }
}

/// A separator as people write it: `\t`, `\n` and `\\` are understood.
pub(crate) fn separator(text: &str) -> Result<String, String> {
    let separator =
        text.replace("\\\\", "\u{0}").replace("\\t", "\t").replace("\\n", "\n").replace('\u{0}', "\\");
    if separator.is_empty() { Err("a separator has at least one character".into()) } else { Ok(separator) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        for wrong in ["", "s", "-1s", "3 weeks", "1.2.3s", "99999999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn topics_bounds_properties_and_separators() {
        assert_eq!(topic("orders:4"), Ok(("orders".into(), 4)));
        assert_eq!(topic("orders"), Ok(("orders".into(), 1)));
        assert!(topic("orders:0").is_err() && topic(":4").is_err() && topic("a:b").is_err());
        assert_eq!(bound("unlimited"), Ok(CrashBound::Unlimited));
        assert_eq!(bound("3"), Ok(CrashBound::Max(3)));
        assert!(bound("-3").is_err());
        assert_eq!(property("a.b = c=d"), Ok(("a.b".into(), "c=d".into())));
        assert!(property("a").is_err() && property("=b").is_err());
        assert_eq!(separator("\\t"), Ok("\t".into()));
        assert_eq!(separator("\\\\t"), Ok("\\t".into()));
        assert!(separator("").is_err());
    }
}
