//! Reading: which partitions are read from which broker, and the tasks that do it.
//!
//! A worker puts its partition into the [`FetchTable`]. The `leaders` task finds the leader of each and, where
//! there is no committed offset, its start; it has one fetcher started for each leader broker. A fetcher asks
//! for all its partitions that have room, learns the next offsets from batch headers alone, and hands the
//! bytes on unread.

mod fetcher;
mod leaders;
mod table;

use std::sync::Arc;
use std::time::Duration;

use kohort_client::Client;
use kohort_supervisor::{ChildSpec, Supervisor, SupervisorBuilder};

pub(crate) use self::table::{Chunk, FetchTable, Start};

use crate::member::Incarnation;

/// A fetcher that panics is a defect; it may happen now and then without ending the member.
const RESTARTS: (u32, Duration) = (10, Duration::from_secs(60));

/// The fetchers supervisor.
pub(crate) fn supervisor(
    incarnation: Arc<Incarnation>,
    client: Client,
    table: FetchTable,
) -> SupervisorBuilder {
    let leaders = ChildSpec::task_with("leaders", move |context| {
        let leaders = leaders::Leaders {
            incarnation: incarnation.clone(),
            client: client.clone(),
            table: table.clone(),
            supervisor: context.supervisor,
        };
        leaders.run()
    });
    Supervisor::one_for_one().intensity(RESTARTS.0, RESTARTS.1).child(leaders)
}
