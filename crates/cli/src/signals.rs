//! Ctrl-C and SIGTERM: the first asks the command to end cleanly, the second ends it at once.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::exit::CliError;
use crate::style;

/// A signal that follows so closely is the same one, sent to the process and to its group, as timeout(1) does.
const SAME: Duration = Duration::from_millis(200);

/// Tells whether a stop was asked for.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Waits until a stop is asked for. Cancel safe.
    pub(crate) async fn asked(&mut self) {
        if self.0.wait_for(|asked| *asked).await.is_err() {
            // The listening task is gone with the runtime: nothing is left to wait for.
            std::future::pending::<()>().await;
        }
    }
}

/// Listens from now on.
pub(crate) fn listen() -> Result<Stop, CliError> {
    let (tell, told) = watch::channel(false);
    #[cfg(unix)]
    let mut term = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate()).map_err(|error| CliError::io("listening for SIGTERM", error))?
    };
    tokio::spawn(async move {
        let mut first = None;
        loop {
            #[cfg(unix)]
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = term.recv() => {}
            }
            #[cfg(not(unix))]
            if tokio::signal::ctrl_c().await.is_err() {
                return;
            }
            let asked = *first.get_or_insert_with(Instant::now);
            if tell.send_replace(true) && asked.elapsed() > SAME {
                style::say("stopped at once by a second signal");
                std::process::exit(130);
            }
        }
    });
    Ok(Stop(told))
}
