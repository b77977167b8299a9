//! What a supervisor says about its children: their list, and its level of a tree's snapshot.

use super::{Message, State};
use crate::builder::Strategy;
use crate::handle::{ChildInfo, ChildStatus, ChildTarget};
use crate::id::ChildId;
use crate::plan::{Child, Key, State as ChildState};
use crate::snapshot::{LastExit, Level, SupervisorSnapshot, TreeSnapshot};
use crate::spec::ChildKind;
use std::collections::HashMap;
use tokio::time::Instant;

impl State {
    pub(super) fn resolve(&self, target: ChildTarget) -> ChildId {
        match target {
            ChildTarget::Id(id) => id,
            ChildTarget::Actor(actor) => {
                let held = self.by_actor.get(&actor).and_then(|(key, _)| self.children.get(key));
                // Nobody's id: it is answered as not found.
                held.map_or_else(|| actor.to_string().into(), |held| held.spec.id.clone())
            }
        }
    }

    fn status(&self, child: &Child) -> ChildStatus {
        match child.state() {
            ChildState::Starting { .. } => ChildStatus::Starting,
            ChildState::Running => ChildStatus::Running,
            ChildState::Stopping => ChildStatus::Stopping,
            ChildState::Lost => ChildStatus::Unkillable,
            ChildState::Down if self.plan.is_restarting(child) => ChildStatus::Restarting,
            ChildState::Down => ChildStatus::Down,
        }
    }

    pub(super) fn list(&self) -> Vec<ChildInfo> {
        let info = |child: &Child| ChildInfo {
            id: child.id.clone(),
            incarnation: child.incarnation,
            cell: self.cell(child.key).cloned(),
            kind: child.kind,
            restart: child.restart.clone(),
            status: self.status(child),
        };
        self.plan.children().iter().map(info).collect()
    }

    pub(super) fn level(&self) -> Level {
        let now = Instant::now();
        let mut restarts: HashMap<Key, usize> = HashMap::new();
        for key in self.plan.restarts(now.into_std()) {
            *restarts.entry(key).or_default() += 1;
        }
        let mut below = Vec::new();
        let mut children = Vec::with_capacity(self.plan.children().len());
        for child in self.plan.children().iter() {
            if let Some(cell) = self.cell(child.key)
                && cell.is_message_type_of::<Message>() == Some(true)
            {
                below.push((children.len(), cell.clone()));
            }
            children.push(TreeSnapshot {
                id: child.id.as_str().to_owned(),
                kind: child.kind,
                status: self.status(child),
                incarnation: child.incarnation,
                restarts_in_window: restarts.get(&child.key).copied().unwrap_or(0),
                uptime: child.since.map(|since| now.into_std().saturating_duration_since(since)),
                last_exit: child
                    .last_exit
                    .as_ref()
                    .map(|reason| LastExit { class: reason.class().to_owned(), text: reason.to_string() }),
                supervisor: None,
                children: Vec::new(),
            });
        }
        let strategy = match self.builder.strategy {
            _ if self.builder.dynamic.is_some() => "dynamic",
            Strategy::OneForOne => "one_for_one",
            Strategy::OneForAll => "one_for_all",
            Strategy::RestForOne => "rest_for_one",
        };
        let node = TreeSnapshot {
            id: self.builder.id.as_str().to_owned(),
            kind: ChildKind::Supervisor,
            status: if self.plan.is_ending() { ChildStatus::Stopping } else { ChildStatus::Running },
            incarnation: 1,
            restarts_in_window: 0,
            uptime: Some(now.saturating_duration_since(self.began)),
            last_exit: None,
            supervisor: Some(SupervisorSnapshot {
                strategy: strategy.to_owned(),
                restarts: restarts.values().sum(),
                intensity: self.builder.max,
                period: self.builder.period,
            }),
            children,
        };
        Level { node, below }
    }
}
