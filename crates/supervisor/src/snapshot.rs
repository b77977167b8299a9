//! A whole tree as plain data at one moment, and as text. Gathered by the caller: each supervisor answers for
//! its own children at once, and one that cannot answer in time is shown without them.

use crate::handle::ChildStatus;
use crate::spec::ChildKind;
use ractor::ActorCell;
use std::fmt;
use std::time::Duration;

/// A child, or the root, with everything below it.
///
/// `Display` draws the tree, one line a child.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TreeSnapshot {
    /// Its id within its supervisor; of the root, its own.
    pub id: String,
    /// Worker or supervisor.
    pub kind: ChildKind,
    /// What it is doing. A supervisor that shuts down is `Stopping`.
    pub status: ChildStatus,
    /// How often it was started; 1 for the root.
    pub incarnation: u64,
    /// Of a child: how many restarts it has caused that its supervisor's window still counts. Of the root: 0.
    pub restarts_in_window: usize,
    /// How long this incarnation has run, while it runs.
    pub uptime: Option<Duration>,
    /// Why the incarnation before it ended or did not start.
    pub last_exit: Option<LastExit>,
    /// Of a supervisor that answered.
    pub supervisor: Option<SupervisorSnapshot>,
    /// In start order. Empty for a worker, and for a supervisor that did not answer.
    pub children: Vec<TreeSnapshot>,
}

/// What a supervisor says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SupervisorSnapshot {
    /// `one_for_one`, `one_for_all`, `rest_for_one` or `dynamic`.
    pub strategy: String,
    /// Restarts in the window, all children together.
    pub restarts: usize,
    /// How many are allowed in it.
    pub intensity: u32,
    /// How long the window is.
    pub period: Duration,
}

/// Why an incarnation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct LastExit {
    /// As [`ExitReason::class`](crate::ExitReason::class).
    pub class: String,
    /// The reason as text.
    pub text: String,
}

/// What one supervisor answers: its own node with its children, none of them with theirs.
pub(crate) struct Level {
    pub(crate) node: TreeSnapshot,
    /// Where to ask on: which child, and who it is.
    pub(crate) below: Vec<(usize, ActorCell)>,
}

impl TreeSnapshot {
    /// Every node with its depth, the root first, in the order of the drawing.
    pub fn walk(&self) -> Vec<(usize, &TreeSnapshot)> {
        let mut nodes = Vec::new();
        let mut left = vec![(0, self)];
        while let Some((depth, node)) = left.pop() {
            nodes.push((depth, node));
            left.extend(node.children.iter().rev().map(|child| (depth + 1, child)));
        }
        nodes
    }

    /// The child at the end of this path of ids, for example `["partitions", "orders/0"]`.
    pub fn find<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Option<&TreeSnapshot> {
        let mut node = self;
        for id in path {
            node = node.children.iter().find(|child| child.id == id)?;
        }
        Some(node)
    }

    fn draw(&self, f: &mut fmt::Formatter<'_>, lead: &str, below: &str, width: usize) -> fmt::Result {
        let name = format!("{lead}{}", self.id);
        write!(f, "{name:width$}  {} · {}", self.kind.as_str(), self.status.as_str())?;
        if self.incarnation > 1 {
            write!(f, " · incarnation {}", self.incarnation)?;
        }
        if let Some(uptime) = self.uptime {
            write!(f, " · up {}", Rounded(uptime))?;
        }
        if let Some(own) = &self.supervisor {
            let SupervisorSnapshot { strategy, restarts, intensity, period } = own;
            write!(f, " · {strategy} · {restarts} of {intensity} restarts in {}", Rounded(*period))?;
        } else if self.kind == ChildKind::Supervisor && self.status == ChildStatus::Running {
            write!(f, " · no answer")?;
        }
        if let Some(exit) = &self.last_exit {
            write!(f, " · last exit {}", exit.text.replace('\n', " "))?;
        }
        writeln!(f)?;
        let last = self.children.len().saturating_sub(1);
        for (index, child) in self.children.iter().enumerate() {
            let (branch, rest) = if index == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            child.draw(f, &format!("{below}{branch}"), &format!("{below}{rest}"), width)?;
        }
        Ok(())
    }
}

impl fmt::Display for TreeSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.walk().into_iter().map(|(depth, node)| 3 * depth + node.id.chars().count());
        self.draw(f, "", "", lengths.max().unwrap_or(0))
    }
}

struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0 => write!(f, "{} ms", self.0.as_millis()),
            seconds if seconds < 120 => write!(f, "{seconds} s"),
            seconds if seconds < 7200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3600),
        }
    }
}
