//! The actor that every contender runs, and the peer's way to start it.

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use ractor_supervisor::{ChildSpec as PeerSpec, Restart as PeerRestart, SpawnFn};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Tells when it runs; fails on request.
#[derive(Clone, Default)]
pub struct Probe {
    pub running: Option<UnboundedSender<Instant>>,
    /// When it failed last.
    pub failed: Arc<Mutex<Option<Instant>>>,
}

pub struct Fail;

impl Actor for Probe {
    type Msg = Fail;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Fail>, _: ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn post_start(&self, _: ActorRef<Fail>, _: &mut ()) -> Result<(), ActorProcessingErr> {
        if let Some(running) = &self.running {
            let _ = running.send(Instant::now());
        }
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Fail>, _: Fail, _: &mut ()) -> Result<(), ActorProcessingErr> {
        if let Ok(mut failed) = self.failed.lock() {
            *failed = Some(Instant::now());
        }
        Err("asked to".into())
    }
}

/// A parent that does nothing about its children.
pub struct Parent;

impl Actor for Parent {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, _: ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        _: SupervisionEvent,
        _: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// What one would write by hand: it starts its child again at once, and knows nothing else.
pub struct ByHand(pub Probe);

impl Actor for ByHand {
    type Msg = ();
    type State = ActorCell;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<()>, _: ()) -> Result<ActorCell, ActorProcessingErr> {
        let (child, _) = Actor::spawn_linked(None, self.0.clone(), (), myself.get_cell()).await?;
        Ok(child.get_cell())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<()>,
        event: SupervisionEvent,
        child: &mut ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(..) = event {
            let (again, _) = Actor::spawn_linked(None, self.0.clone(), (), myself.get_cell()).await?;
            *child = again.get_cell();
        }
        Ok(())
    }
}

pub fn ours(id: impl Into<kohort_supervisor::ChildId>, probe: &Probe) -> kohort_supervisor::ChildSpec {
    let probe = probe.clone();
    kohort_supervisor::ChildSpec::actor(id, move || (probe.clone(), ()))
}

pub fn peers(id: String, probe: &Probe) -> PeerSpec {
    let probe = probe.clone();
    let spawn_fn = SpawnFn::new(move |supervisor: ActorCell, id: String| {
        let probe = probe.clone();
        async move {
            let (actor, _) = ractor_supervisor::Supervisor::spawn_linked(id, probe, (), supervisor).await?;
            Ok(actor.get_cell())
        }
    });
    PeerSpec { id, restart: PeerRestart::Permanent, spawn_fn, backoff_fn: None, reset_after: None }
}

pub fn peer_options() -> ractor_supervisor::SupervisorOptions {
    ractor_supervisor::SupervisorOptions {
        strategy: ractor_supervisor::SupervisorStrategy::OneForOne,
        max_restarts: usize::MAX,
        max_window: Duration::from_millis(1),
        reset_after: None,
    }
}
