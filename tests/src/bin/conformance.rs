//! Runs every test that carries a row of the catalogue in its name, and prints how much of the catalogue is covered: rows
//! in all, rows whose tests are green, rows that do not apply and why. Exit code 1 if a row has neither.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use kohort_tests::conformance::{Asks, ROWS, Row, Test, missing, rows, tests};
use kohort_tests::workspace::{read, root};

/// Run the tests of the conformance catalogue and print its coverage
#[derive(Parser)]
#[command(name = "conformance")]
struct Options {
    /// Print each row with its tests
    #[arg(long, short)]
    verbose: bool,
}

/// How each test of this name ended, in whichever crate it is.
type Outcomes = BTreeMap<String, BTreeSet<String>>;

fn main() -> ExitCode {
    let options = Options::parse();
    let rows = match rows(&read(ROWS)) {
        Ok(rows) => rows,
        Err(error) => return failure(&format!("{ROWS}: {error}")),
    };
    let tests = tests();
    let names: BTreeSet<&str> = tests.values().flatten().map(|test| test.name.as_str()).collect();
    eprintln!("running {} tests of the catalogue", names.len());
    let outcomes = match run(&names) {
        Ok(outcomes) => outcomes,
        Err(error) => return failure(&error),
    };
    let green = |test: &Test| {
        outcomes.get(&test.name).is_some_and(|ended| ended.iter().map(String::as_str).eq(["ok"]))
    };
    let covered = |row: &Row| {
        let own = tests.get(&row.id);
        missing(row, &tests).is_empty() && own.is_some_and(|own| own.iter().all(green))
    };
    let mut areas: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let (mut total, mut without) = ([0; 4], Vec::new());
    for row in &rows {
        let kind = match &row.asks {
            Asks::NotApplicable { .. } => 2,
            Asks::Tests(_) if covered(row) => 1,
            Asks::Tests(_) => 3,
        };
        for counts in [areas.entry(row.area()).or_default(), &mut total] {
            counts[0] += 1;
            counts[kind] += 1;
        }
        if kind == 3 {
            without.push(row);
        }
        if options.verbose {
            show(row, tests.get(&row.id), &green);
        }
    }
    println!("{:<12} {:>6} {:>6} {:>15} {:>8}", "area", "rows", "green", "not applicable", "neither");
    for (area, [rows, green, not, neither]) in areas.into_iter().chain([("total", total)]) {
        println!("{area:<12} {rows:>6} {green:>6} {not:>15} {neither:>8}");
    }
    println!();
    for row in &rows {
        if let Asks::NotApplicable { reason } = &row.asks {
            println!("{} does not apply: {reason}", row.id);
        }
    }
    for row in &without {
        show(row, tests.get(&row.id), &green);
        for place in missing(row, &tests) {
            println!("    no test on {place}");
        }
    }
    if without.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failure(text: &str) -> ExitCode {
    eprintln!("error: {text}");
    ExitCode::FAILURE
}

fn show(row: &Row, tests: Option<&BTreeSet<Test>>, green: &impl Fn(&Test) -> bool) {
    println!("{}: {}", row.id, row.what);
    for test in tests.into_iter().flatten() {
        let ended = if green(test) { "ok" } else { "NOT GREEN" };
        println!("    {ended}  {}::{}", test.file, test.name);
    }
}

/// Runs just these. A test that fails is an outcome; tests that do not compile are an error.
fn run(names: &BTreeSet<&str>) -> Result<Outcomes, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast", "--"])
        .args(names)
        .current_dir(root())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    let mut outcomes = Outcomes::new();
    let output = child.stdout.take().ok_or("cargo has no output")?;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("what cargo says cannot be read: {error}"))?;
        let Some((path, ended)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) else {
            continue;
        };
        let name = path.rsplit("::").next().unwrap_or(path).trim_end_matches(" - should panic");
        outcomes.entry(name.to_owned()).or_default().insert(ended.trim().to_owned());
    }
    child.wait().map_err(|error| format!("cargo is lost: {error}"))?;
    if outcomes.is_empty() {
        return Err("no test ran; see above".into());
    }
    Ok(outcomes)
}
