//! How the command looks: colours on a terminal, plain text elsewhere, and lines that never panic when nobody
//! reads them.

use std::io::{self, IsTerminal, Write};

/// A colour or weight.
#[derive(Clone, Copy)]
pub(crate) enum Paint {
    Dim,
    Bold,
    Red,
    Green,
    Yellow,
    Cyan,
}

/// Paints on a terminal; leaves text as it is elsewhere and where `NO_COLOR` is set.
#[derive(Clone, Copy)]
pub(crate) struct Painter(bool);

impl Painter {
    pub(crate) fn for_stdout() -> Self {
        Self(io::stdout().is_terminal() && wanted())
    }

    pub(crate) fn for_stderr() -> Self {
        Self(io::stderr().is_terminal() && wanted())
    }

    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        let code = match paint {
            Paint::Dim => "2",
            Paint::Bold => "1",
            Paint::Red => "31",
            Paint::Green => "32",
            Paint::Yellow => "33",
            Paint::Cyan => "36",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

fn wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// One line on stderr. A stderr that is gone has nobody to complain to.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// One line on stdout, whole and at once.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{text}\n").as_bytes())?;
    out.flush()
}
