//! The command as its users run it: a process with arguments, streams, signals and an exit code.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod command {
    pub(crate) mod process;
}

use std::fs;
use std::time::{Duration, Instant};

use command::process::{BrokerProcess, Ended, Running, free_port, run};

const COMMANDS: [&str; 5] = ["demo", "broker", "produce", "consume", "group"];

fn kohort(arguments: &[&str]) -> Ended {
    run(arguments, b"")
}

#[test]
fn every_subcommand_explains_itself() {
    let top = kohort(&["--help"]);
    assert_eq!(top.code, Some(0));
    for command in COMMANDS {
        assert!(top.stdout.contains(command), "{}", top.stdout);
        let help = kohort(&[command, "--help"]);
        assert_eq!(help.code, Some(0));
        assert!(help.stdout.contains("Usage: kohort"), "{}", help.stdout);
    }
    assert!(kohort(&["--version"]).stdout.contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_cannot_be_is_refused_with_2_and_a_reason() {
    for (arguments, says) in [
        (&["consume", "--group", "g"][..], "--topic"),
        (&["consume", "--group", "g", "--topic", "t", "--form", "json"], "--form"),
        (&["consume", "--group", "g", "--topic", "t", "--crash-rejoin-window", "soon"], "500ms, 30s or 2m"),
        (
            &["consume", "--group", "g", "--topic", "t", "--property", "sesion.timeout.ms=1"],
            "session.timeout.ms",
        ),
        (
            &["consume", "--group", "g", "--topic", "t", "--property", "heartbeat.interval.ms=60000"],
            "heartbeat.interval.ms = 60s: must be shorter than the session timeout",
        ),
        (&["consume", "--group", " ", "--topic", "t"], "group.id"),
        (&["consume", "--group", "g", "--topic", "a b"], "topics = a b"),
        (&["consume", "--group", "g", "--topic", "t", "--members", "0"], "members"),
        (&["consume", "--group", "g", "--topic", "t", "--bootstrap-server", "localhost"], "host:port"),
        (&["produce", "--topic", "t", "--bootstrap-server", "localhost"], "host:port"),
        (&["produce", "--topic", "t", "--compression", "rar"], "snappy"),
        (&["produce", "--topic", "t", "--file", "no/such/file"], "no/such/file"),
        (&["broker", "--topic", "orders:none"], "NAME:PARTITIONS"),
        (&["demo", "--input", "no/such/file"], "no/such/file"),
        (&["demo", "--partitions", "0"], "0"),
        (&["dmeo"], "demo"),
    ] {
        let ended = kohort(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{arguments:?} should say {says:?}: {}", ended.stderr);
    }
}

#[test]
fn without_a_broker_the_exit_code_is_3_after_the_time_asked_for() {
    let server = format!("127.0.0.1:{}", free_port());
    let begun = Instant::now();
    let produce = run(
        &["produce", "--topic", "t", "--bootstrap-server", &server, "--connect-timeout", "700ms"],
        b"x\n",
    );
    assert_eq!(produce.code, Some(3), "{}", produce.stderr);
    let consume = kohort(&[
        "consume",
        "--group",
        "g",
        "--topic",
        "t",
        "--bootstrap-server",
        &server,
        "--connect-timeout",
        "700ms",
    ]);
    assert_eq!(consume.code, Some(3), "{}", consume.stderr);
    assert!(begun.elapsed() < Duration::from_secs(20));
    for ended in [produce, consume] {
        assert!(ended.stderr.contains(&server), "what was tried: {}", ended.stderr);
        assert!(ended.stderr.contains("--bootstrap-server"), "what to check: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn a_broker_says_once_where_it_listens_and_stops_when_asked() {
    let broker = BrokerProcess::start(&["--topic", "orders:4"]);
    let produced = run(&["produce", "--topic", "orders", "--bootstrap-server", &broker.address], b"a\nb");
    assert_eq!(produced.code, Some(0), "{}", produced.stderr);
    assert_eq!(produced.stdout, "2 records acknowledged, 0 failed, topic orders\n");
    let ended = broker.process.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, "", "one line only");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let broker = BrokerProcess::start(&[]);
    let second = kohort(&["broker", "--listen", &broker.address]);
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    assert!(
        second.stderr.contains(&broker.address) && second.stderr.contains("--listen"),
        "{}",
        second.stderr
    );
}

#[test]
fn a_topic_that_nobody_creates_is_an_error() {
    let broker = BrokerProcess::start(&["--no-auto-create"]);
    let ended = run(&["produce", "--topic", "nowhere", "--bootstrap-server", &broker.address], b"x\n");
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("nowhere"), "{}", ended.stderr);
}

/// Consumes `count` records from the start, as `group`.
fn consume(broker: &BrokerProcess, group: &str, count: &str, more: &[&str]) -> Ended {
    let mut arguments =
        vec!["consume", "--bootstrap-server", &broker.address, "--group", group, "--topic", "t"];
    arguments.extend(["--from", "earliest", "--max-messages", count]);
    arguments.extend(more);
    kohort(&arguments)
}

fn produce(broker: &BrokerProcess, input: &[u8], more: &[&str]) {
    let mut arguments = vec!["produce", "--bootstrap-server", &broker.address, "--topic", "t"];
    arguments.extend(more);
    let ended = run(&arguments, input);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn what_is_produced_is_consumed_as_text_and_as_json() {
    let broker = BrokerProcess::start(&["--topic", "t:1"]);
    produce(&broker, b"k1\tone\nno key\nk2\t\n\xff\xfe\nlast\ttab\ttab", &[]);
    let text = consume(&broker, "text", "5", &[]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    assert_eq!(text.bytes, b"k1\tone\nno key\nk2\t\n\xff\xfe\nlast\ttab\ttab\n");
    let json = consume(&broker, "json", "5", &["--format", "json", "--quiet"]);
    assert_eq!(json.stderr, "");
    let records: Vec<serde_json::Value> =
        json.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 5);
    assert_eq!(records[0]["topic"], "t");
    assert_eq!(records[0]["partition"], 0);
    assert_eq!(records[0]["offset"], 0);
    assert!(records[0]["timestamp"].as_i64().unwrap() > 0);
    assert_eq!((&records[0]["key"], &records[0]["value"]), (&"k1".into(), &"one".into()));
    assert!(records[1]["key"].is_null() && records[1]["headers"].as_array().unwrap().is_empty());
    assert_eq!(records[3]["value"]["base64"], "//4=");
    assert_eq!(records[4]["value"], "tab\ttab");
}

#[test]
fn every_compression_makes_the_round_trip() {
    let broker = BrokerProcess::start(&["--topic", "t:1"]);
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        produce(&broker, format!("{codec} {codec} {codec}\n").as_bytes(), &["--compression", codec]);
    }
    let all = consume(&broker, "g", "5", &[]);
    assert_eq!(all.stdout.lines().count(), 5);
    assert!(all.stdout.contains("zstd zstd zstd\n"), "{}", all.stdout);
}

#[test]
fn a_limit_prints_and_commits_exactly_so_many() {
    let broker = BrokerProcess::start(&["--topic", "t:4"]);
    let lines: String = (0..100).map(|n| format!("key-{n}\tvalue-{n}\n")).collect();
    produce(&broker, lines.as_bytes(), &[]);
    let mut seen = Vec::new();
    for (count, members) in [("1", "1"), ("30", "2"), ("42", "3"), ("27", "1")] {
        let part = consume(&broker, "g", count, &["--members", members]);
        assert_eq!(part.code, Some(0), "{}", part.stderr);
        let printed: Vec<String> = part.stdout.lines().map(str::to_owned).collect();
        assert_eq!(printed.len().to_string(), count, "{}", part.stderr);
        seen.extend(printed);
    }
    // No record was committed that was not printed, and none was printed that was not committed.
    seen.sort();
    let mut wanted: Vec<String> = lines.lines().map(str::to_owned).collect();
    wanted.sort();
    assert_eq!(seen, wanted);
}

#[test]
fn a_record_is_out_at_once_and_a_signal_closes_cleanly() {
    let broker = BrokerProcess::start(&["--topic", "t:2"]);
    let arguments = ["consume", "--bootstrap-server", &broker.address, "--group", "g", "--topic", "t"];
    let mut consumer = Running::start(&[&arguments[..], &["--from", "earliest"]].concat());
    produce(&broker, b"first\n", &[]);
    assert_eq!(consumer.line(), "first");
    let ended = consumer.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("left the group"), "{}", ended.stderr);
    produce(&broker, b"second\n", &[]);
    let next = consume(&broker, "g", "1", &[]);
    assert_eq!(next.stdout, "second\n", "what was printed is committed");
}

#[test]
fn a_consumer_waits_for_a_broker_that_comes_later() {
    let address = format!("127.0.0.1:{}", free_port());
    let arguments = ["consume", "--bootstrap-server", &address, "--group", "g", "--topic", "t"];
    let mut consumer = Running::start(&[&arguments[..], &["--from", "earliest"]].concat());
    consumer.says("cannot reach");
    let broker = BrokerProcess::start_on(&address, &["--topic", "t:1"]);
    produce(&broker, b"late\n", &[]);
    assert_eq!(consumer.line(), "late");
    let ended = consumer.stop();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("cannot reach") && ended.stderr.contains(&address), "{}", ended.stderr);
}

#[test]
fn a_quiet_consumer_still_says_what_keeps_records_from_coming() {
    let broker = BrokerProcess::start(&["--topic", "t:1"]);
    let arguments = ["consume", "--bootstrap-server", &broker.address, "--group", "g", "--topic", "t", "-q"];
    let mut consumer = Running::start(&[&arguments[..], &["--from", "none"]].concat());
    consumer.says("no offset is committed, and auto.offset.reset is none");
    assert_eq!(consumer.stop().code, Some(0));
    let address = format!("127.0.0.1:{}", free_port());
    let arguments = ["consume", "--bootstrap-server", &address, "--group", "g", "--topic", "t", "-q"];
    let mut consumer = Running::start(&arguments);
    consumer.says("cannot reach the cluster");
    assert_eq!(consumer.stop().code, Some(0));
}

#[test]
fn a_reader_that_closes_stdout_ends_the_command_quietly() {
    let broker = BrokerProcess::start(&["--topic", "t:1"]);
    let lines: String = (0..50_000).map(|n| format!("{n}\n")).collect();
    produce(&broker, lines.as_bytes(), &[]);
    let arguments = ["consume", "--bootstrap-server", &broker.address, "--group", "g", "--topic", "t"];
    let mut consumer = Running::start(&[&arguments[..], &["--from", "earliest", "--quiet"]].concat());
    assert_eq!(consumer.line(), "0");
    let ended = consumer.close_stdout();
    assert_eq!(ended.code, Some(141), "{}", ended.stderr);
    assert_eq!(ended.stderr, "");
}

#[test]
fn d_38_a_member_that_is_refused_ends_the_command_with_4_and_the_cause_last() {
    let broker = BrokerProcess::start(&["--topic", "t:1"]);
    let ended = consume(&broker, "g", "1", &["--property", "session.timeout.ms=100000000"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.contains("JoinGroup refused: InvalidSessionTimeout"), "{}", ended.stderr);
}

#[test]
fn d_19_a_member_whose_instance_id_another_took_ends_the_command_with_4_and_says_so() {
    let broker = BrokerProcess::start(&["--topic", "t:1"]);
    produce(&broker, b"a\n", &[]);
    let arguments = ["consume", "--bootstrap-server", &broker.address, "--group", "g", "--topic", "t"];
    let more = ["--from", "earliest", "--instance-id", "web-0", "--property", "heartbeat.interval.ms=200"];
    let start = || Running::start(&[&arguments[..], &more[..]].concat());
    let mut older = start();
    assert_eq!(older.line(), "a");
    let newer = start();
    let ended = older.wait();
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.lines().last().unwrap().contains("fenced"), "{}", ended.stderr);
    assert_eq!(newer.stop().code, Some(0), "the newer one holds the place");
}

/// A consumer that cannot get rid of its lines, because nobody reads them.
fn stuck(broker: &BrokerProcess, close_timeout: &str) -> Running {
    let lines = "some text that fills a pipe in the end\n".repeat(20_000);
    produce(broker, lines.as_bytes(), &[]);
    let arguments = ["consume", "--bootstrap-server", &broker.address, "--group", "g", "--topic", "t"];
    let more = ["--from", "earliest", "--close-timeout", close_timeout];
    let mut stuck = Running::start_unread(&[&arguments[..], &more[..]].concat());
    stuck.says("assigned");
    // Nothing tells that the pipe is full; filling it takes milliseconds from here on.
    std::thread::sleep(Duration::from_secs(1));
    stuck
}

#[test]
fn d_24_a_close_that_cannot_finish_is_forced_and_says_so_with_6() {
    let broker = BrokerProcess::start(&["--topic", "t:1"]);
    let ended = stuck(&broker, "1s").stop();
    assert_eq!(ended.code, Some(6), "{}", ended.stderr);
    assert!(ended.stderr.contains("forced") && ended.stderr.contains("t-0"), "{}", ended.stderr);
}

/// Symptom: under timeout(1), which signals the process and its group, a consumer ended without a commit.
#[cfg(target_os = "linux")]
#[test]
fn one_signal_that_comes_twice_is_one() {
    let broker = BrokerProcess::start(&["--topic", "t:1"]);
    for round in 0..5 {
        let arguments = ["consume", "--bootstrap-server", &broker.address, "--group", "g", "--topic", "t"];
        let mut consumer = Running::start(&[&arguments[..], &["--from", "earliest"]].concat());
        produce(&broker, format!("{round}\n").as_bytes(), &[]);
        assert_eq!(consumer.line(), round.to_string());
        consumer.signal_twice();
        let ended = consumer.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let broker = BrokerProcess::start(&["--topic", "t:1"]);
    let stuck = stuck(&broker, "60s");
    let begun = Instant::now();
    let ended = stuck.insist();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_demo_loses_nothing() {
    let ended = kohort(&["demo", "--records", "4000"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let row = |name: &str| {
        let line = ended.stdout.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(row("records produced"), "4000");
    assert_eq!(row("records booked"), "4000");
    assert_eq!(row("lost"), "0");
    assert_eq!(row("rejoins"), "3");
    assert_eq!(row("terminations"), "1");
    assert!(ended.stdout.contains("window [###.] 3/3"), "{}", ended.stdout);
    assert!(!ended.stdout.contains('\x1b'), "no colours into a pipe");
}

#[test]
fn a_demo_of_static_restarts_costs_no_rebalance() {
    let ended = kohort(&["demo", "--static", "--records", "4000"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for (name, value) in [("records booked", "4000"), ("lost", "0"), ("restarts", "2"), ("rebalances", "0")] {
        let line = format!("  {name:<18} {value:>12}");
        assert!(ended.stdout.contains(&line), "no line {line:?} in {}", ended.stdout);
    }
    let back = ended.stdout.lines().filter(|line| line.contains(" again, ")).count();
    assert_eq!(back, 2, "{}", ended.stdout);
}

#[test]
fn a_demo_takes_the_lines_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (some, none) = (folder.path().join("some.tsv"), folder.path().join("none.tsv"));
    fs::write(&some, b"ann\t5\nbob\t7\nann\t-1\n\xff\xfe\t3\nno amount\nbob\tx").unwrap();
    fs::write(&none, b"").unwrap();
    for (input, records, sum) in [(&some, "6", "14"), (&none, "0", "0")] {
        let path = input.to_str().unwrap();
        let ended = kohort(&["demo", "--input", path, "--crash-rejoin-max-restarts", "1"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        for (name, value) in
            [("records booked", records), ("sum booked", sum), ("lost", "0"), ("rejoins", "1")]
        {
            let line = format!("  {name:<18} {value:>12}");
            assert!(ended.stdout.contains(&line), "no line {line:?} in {}", ended.stdout);
        }
    }
}

#[test]
fn a_demo_whose_window_is_too_short_says_so() {
    let ended = kohort(&["demo", "--records", "100", "--crash-rejoin-window", "10ms"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("crash_loop") && ended.stderr.contains("10ms"), "{}", ended.stderr);
}

#[test]
fn d_22_groups_are_listed_described_and_deleted_and_static_members_removed() {
    let broker = BrokerProcess::start(&["--topic", "t:2"]);
    let group = |arguments: &[&str]| {
        let mut all = vec!["group"];
        all.extend(arguments);
        all.extend(["--bootstrap-server", &broker.address]);
        kohort(&all)
    };
    produce(&broker, b"a\nb\n", &[]);
    assert_eq!(consume(&broker, "left", "2", &["--quiet"]).code, Some(0));
    // A static member does not leave: its place is there until it is removed.
    let stays = consume(&broker, "stays", "2", &["--quiet", "--instance-id", "one"]);
    assert_eq!(stays.code, Some(0), "{}", stays.stderr);

    assert_eq!(group(&["list"]).stdout, "Empty\tleft\nStable\tstays\n");
    assert_eq!(group(&["list", "--state", "EMPTY"]).stdout, "Empty\tleft\n");
    let described = group(&["describe", "--group", "stays"]);
    let lines: Vec<&str> = described.stdout.lines().collect();
    assert_eq!(lines[0], "stays\tStable\trange", "{}", described.stderr);
    let member: Vec<&str> = lines[1].split('\t').collect();
    assert_eq!((member[0], member[2], member[5]), ("member", "one", "t-0,t-1"));
    assert!(lines[2..].iter().all(|line| line.starts_with("committed\tt-")), "{lines:?}");

    let refused = group(&["delete", "--group", "stays"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("NonEmptyGroup"), "{}", refused.stderr);
    let removed =
        group(&["remove-members", "--group", "stays", "--instance-id", "one", "--instance-id", "two"]);
    assert_eq!((removed.code, removed.stdout.as_str()), (Some(1), "removed one\n"), "{}", removed.stderr);
    assert!(removed.stderr.contains("two: UnknownMemberId (25)"), "{}", removed.stderr);
    assert_eq!(group(&["delete", "--group", "stays"]).stdout, "deleted stays\n");
    let gone = group(&["describe", "--group", "stays"]);
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.contains("GroupIdNotFound"), "{}", gone.stderr);
    let unreached = kohort(&["group", "list", "--timeout", "300ms", "--bootstrap-server", "127.0.0.1:1"]);
    assert_eq!(unreached.code, Some(3), "{}", unreached.stderr);
}
