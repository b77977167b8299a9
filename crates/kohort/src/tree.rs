//! The member's tree: which children, in which order, under which restart rules, on which runtime.
//!
//! ```text
//! member                  one_for_all · max_restarts 0
//! ├─ heartbeat            delegated to the manager           membership runtime
//! ├─ manager              permanent                          membership runtime
//! ├─ partitions           one_for_one · delegated            the caller's runtime
//! │  └─ orders/0 …        transient · one worker a partition
//! └─ fetchers             one_for_one                        the caller's runtime
//!    ├─ leaders           finds leaders and start offsets
//!    └─ broker-1 …        one fetcher a leader broker
//! ```
//!
//! `partitions` is delegated so that workers that give up end the member by the manager's hand: it commits
//! what is done and leaves the group first.

use std::sync::Arc;
use std::time::Duration;

use kohort_client::Client;
use kohort_supervisor::{ChildSpec, DelegateNotice, Shutdown, Supervisor, SupervisorBuilder, SupervisorRef};
use kohort_telemetry::Hub;
use ractor::{Actor, ActorCell, ActorProcessingErr};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::config::MembershipRuntime;
use crate::error::StartError;
use crate::fetch::{self, FetchTable};
use crate::heartbeat::{Heartbeat, HeartbeatArguments};
use crate::manager::{Manager, ManagerArguments, ManagerMessage};
use crate::member::Incarnation;
use crate::runtime;
use crate::worker::WorkerFactory;

/// A close is bounded by the manager's own deadline, and its manager by its supervisor's; this only has to be
/// longer than any close.
const PREPARE_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Starts the tree of an incarnation; under `parent`, or as a root.
pub(crate) async fn start(
    incarnation: &Arc<Incarnation>,
    factory: Arc<dyn WorkerFactory>,
    handlers: Handle,
    parent: Option<ActorCell>,
) -> Result<SupervisorRef, StartError> {
    let builder = describe(incarnation, factory, handlers);
    let begin = {
        let incarnation = incarnation.clone();
        async move {
            let root = match parent {
                Some(parent) => builder.start_linked(parent).await?,
                None => builder.start().await?,
            };
            incarnation.set_root(root.clone());
            Ok::<_, kohort_supervisor::StartError>(Unclaimed { root, claimed: false })
        }
    };
    let started = match incarnation.config.runtime {
        MembershipRuntime::Current => begin.await,
        MembershipRuntime::Dedicated => {
            let membership = runtime::dedicated().map_err(|error| StartError::Runtime(Arc::new(error)))?;
            // A task that is aborted too late keeps what it made; one that cannot hand it over drops it.
            let (made, making) = oneshot::channel();
            membership.spawn(async move { made.send(begin.await) });
            making.await.map_err(|error| StartError::Runtime(Arc::new(std::io::Error::other(error))))?
        }
    };
    Ok(started?.claim())
}

/// A tree that nobody has yet: a start that is given up leaves nothing running.
struct Unclaimed {
    root: SupervisorRef,
    claimed: bool,
}

impl Unclaimed {
    fn claim(mut self) -> SupervisorRef {
        self.claimed = true;
        self.root.clone()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if !self.claimed {
            self.root.request_shutdown(None);
        }
    }
}

fn describe(
    incarnation: &Arc<Incarnation>,
    factory: Arc<dyn WorkerFactory>,
    handlers: Handle,
) -> SupervisorBuilder {
    let config = &incarnation.config;
    // Two clients: a socket lives on the runtime it was opened on, and handlers may block theirs.
    let membership_client = Client::new(config.client(), Hub::new());
    let data_client = Client::new(config.client(), Hub::new());
    let table = FetchTable::new(config.max_buffered_bytes);

    let heartbeat = {
        let (incarnation, client) = (incarnation.clone(), membership_client.clone());
        ChildSpec::actor("heartbeat", move || {
            (Heartbeat, HeartbeatArguments { incarnation: incarnation.clone(), client: client.clone() })
        })
        .delegate_to("manager", to_manager)
    };
    let manager = {
        let (incarnation, table) = (incarnation.clone(), table.clone());
        ChildSpec::new("manager", move |context| {
            let arguments = ManagerArguments {
                incarnation: incarnation.clone(),
                client: membership_client.clone(),
                root: context.supervisor.clone(),
                factory: factory.clone(),
                table: table.clone(),
            };
            let parent = context.cell();
            async move {
                let (manager, _) = Manager::spawn_linked(None, Manager, arguments, parent).await?;
                Ok::<_, ActorProcessingErr>(manager.get_cell())
            }
        })
        .shutdown(Shutdown::Timeout(Duration::from_secs(1)))
    };
    let partitions = Supervisor::one_for_one()
        .intensity(config.worker_max_restarts, config.worker_restart_window)
        .spec("partitions")
        .delegate_to("manager", to_manager)
        .on(handlers.clone());
    let fetchers = fetch::supervisor(incarnation.clone(), data_client, table).spec("fetchers").on(handlers);

    Supervisor::one_for_all()
        .id(incarnation.name.to_string())
        .intensity(0, Duration::from_secs(1))
        .child(heartbeat)
        .child(manager)
        .child(partitions)
        .child(fetchers)
        .prepare("manager", PREPARE_LIMIT, |manager, request| {
            // A manager that is gone is ready: its request is dropped here.
            let _ = manager.send_message(ManagerMessage::Prepare(request));
        })
}

fn to_manager(manager: &ActorCell, notice: DelegateNotice) {
    // A manager that is gone takes the tree with it.
    let _ = manager.send_message(ManagerMessage::Delegate(notice));
}
