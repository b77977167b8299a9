//! What the demo shows while it runs, and its table at the end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::exit::CliError;
use crate::style::{self, Paint, Painter};

/// Prints lines with the time since the start. Cheap to clone.
#[derive(Clone)]
pub(super) struct Stage {
    inner: Arc<Inner>,
}

struct Inner {
    begun: Instant,
    painter: Painter,
    failed: AtomicBool,
    error: OnceLock<io::ErrorKind>,
}

impl Stage {
    pub(super) fn new() -> Self {
        let (begun, painter) = (Instant::now(), Painter::for_stdout());
        Self {
            inner: Arc::new(Inner { begun, painter, failed: AtomicBool::new(false), error: OnceLock::new() }),
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.inner.begun.elapsed().as_secs_f64()
    }

    /// One line. After the first that could not be written nothing more is.
    pub(super) fn say(&self, paint: Paint, text: &str) {
        let time = self.inner.painter.paint(Paint::Dim, &format!("{:7.3}s", self.seconds()));
        self.print(&format!("{time}  {}", self.inner.painter.paint(paint, text)));
    }

    /// How full the crash window is: one place for each crash survived, and one for the crash that ends it.
    pub(super) fn window(&self, crashes: u32, max: u32) {
        const PLACES: u32 = 40;
        let places = max.saturating_add(1);
        let (shown, filled) = match places > PLACES {
            true => (PLACES, (u64::from(crashes) * u64::from(PLACES) / u64::from(places)) as u32),
            false => (places, crashes.min(places)),
        };
        let bar = "#".repeat(filled as usize) + &".".repeat((shown - filled) as usize);
        let paint = if crashes > max { Paint::Red } else { Paint::Yellow };
        self.say(paint, &format!("    window [{bar}] {crashes}/{max}"));
    }

    /// The tree as its supervisors report it.
    pub(super) fn tree(&self, text: &str) {
        self.print("");
        for line in text.lines() {
            self.print(&format!("  {}", self.inner.painter.paint(Paint::Dim, line)));
        }
        self.print("");
    }

    pub(super) fn table(&self, rows: &[(&str, String)], verdict: Result<&str, &str>) {
        self.print("");
        for (name, value) in rows {
            let line = format!("  {name:<18} {value:>12}");
            let paint = match *name {
                "lost" => Some(if value == "0" { Paint::Green } else { Paint::Red }),
                _ => None,
            };
            self.print(&paint.map_or(line.clone(), |paint| self.inner.painter.paint(paint, &line)));
        }
        self.print("");
        let (paint, verdict) = match verdict {
            Ok(good) => (Paint::Green, good),
            Err(bad) => (Paint::Red, bad),
        };
        self.print(&self.inner.painter.paint(paint, verdict));
    }

    pub(super) fn title(&self, text: &str) {
        self.print(&self.inner.painter.paint(Paint::Bold, text));
    }

    /// Whether all that was said could be written.
    pub(super) fn outcome(&self) -> Result<(), CliError> {
        match self.inner.error.get() {
            Some(kind) => Err(CliError::io("writing to stdout", io::Error::from(*kind))),
            None => Ok(()),
        }
    }

    fn print(&self, text: &str) {
        if self.inner.failed.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = style::print(text) {
            self.inner.failed.store(true, Ordering::Relaxed);
            self.inner.error.get_or_init(|| error.kind());
        }
    }
}
