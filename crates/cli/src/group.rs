//! `kohort group`: what an operator asks of groups and does to them.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Subcommand;
use kohort::Address;
use kohort::telemetry::Hub;
use kohort_client::{Client, ClientConfig, ClientError};
use kohort_protocol::messages::*;
use kohort_protocol::{Assignment, ErrorCode, Request};
use tokio::time::Instant;

use crate::exit::CliError;
use crate::signals::Stop;
use crate::{bootstrap, style, units};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// One try takes no longer.
const TRY: Duration = Duration::from_secs(5);

/// List, describe and delete groups, remove their members
///
/// Any brokers will do, Kafka's as well as the embedded one. A request that meets a coordinator that is moving or
/// loading is repeated until the timeout.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Brokers to begin with, separated by commas (repeatable)
    #[arg(long, global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    bootstrap_server: Vec<String>,
    /// How long everything may take
    #[arg(long, global = true, value_name = "DURATION", default_value = "10s", value_parser = units::duration)]
    timeout: Duration,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// One line a group: its state and its name
    List {
        /// Only groups in this state, for example Stable or Empty (repeatable)
        #[arg(long)]
        state: Vec<String>,
    },
    /// A group's state, its members with what they are assigned, and its committed offsets
    Describe {
        /// The group
        #[arg(long)]
        group: String,
    },
    /// Delete a group that has no members, and its committed offsets
    Delete {
        /// The group
        #[arg(long)]
        group: String,
    },
    /// Remove members by their group instance ids, in one request, with a result for each
    RemoveMembers {
        /// The group
        #[arg(long)]
        group: String,
        /// A member's group instance id (repeatable)
        #[arg(long, required = true, value_name = "ID")]
        instance_id: Vec<String>,
    },
}

pub(crate) async fn run(args: Args, mut stop: Stop) -> Result<(), CliError> {
    let client = Client::new(ClientConfig::new(bootstrap::addresses(&args.bootstrap_server)?), Hub::new());
    let asking = Asking { client, within: args.timeout, deadline: Instant::now() + args.timeout };
    tokio::select! {
        done = perform(&asking, args.what) => done,
        () = stop.asked() => Ok(()),
    }
}

async fn perform(asking: &Asking, what: What) -> Result<(), CliError> {
    match what {
        What::List { state } => list(asking, state).await,
        What::Describe { group } => describe(asking, group).await,
        What::Delete { group } => {
            let request = DeleteGroupsRequest { groups: vec![group.clone()] };
            let answered = |answer: &DeleteGroupsResponse| answer.groups.first().map(|group| group.error);
            asking.coordinator(&group, &request, answered).await?;
            print(&format!("deleted {group}"))
        }
        What::RemoveMembers { group, instance_id } => remove(asking, group, instance_id).await,
    }
}

async fn list(asking: &Asking, states: Vec<String>) -> Result<(), CliError> {
    let everyone = MetadataRequest { topics: Some(Vec::new()), allow_auto_topic_creation: false };
    let brokers = asking.any(&everyone).await?.brokers;
    let request = ListGroupsRequest { states, types: Vec::new() };
    let mut groups = BTreeMap::new();
    for broker in brokers {
        let Ok(port) = u16::try_from(broker.port) else { continue };
        let at = Address::new(broker.host, port);
        let answer = asking.at(&at, &request, |answer: &ListGroupsResponse| Some(answer.error)).await?;
        groups.extend(answer.groups.into_iter().map(|group| (group.group_id, group.state)));
    }
    for (group, state) in groups {
        print(&format!("{state}\t{group}"))?;
    }
    Ok(())
}

async fn describe(asking: &Asking, group: String) -> Result<(), CliError> {
    let request = DescribeGroupsRequest { groups: vec![group.clone()] };
    let answered = |answer: &DescribeGroupsResponse| answer.groups.first().map(|group| group.error);
    let answer = asking.coordinator(&group, &request, answered).await?;
    let Some(described) = answer.groups.into_iter().next() else { return Ok(()) };
    // Before version 6 a group that is not there is no error.
    if described.state == "Dead" {
        return Err(CliError::Other(format!("group {group}: {}", ErrorCode::GroupIdNotFound)));
    }
    let of = |text: String| if text.is_empty() { "–".to_owned() } else { text };
    print(&format!("{group}\t{}\t{}", described.state, of(described.protocol_name)))?;
    for member in described.members {
        let assigned = match Assignment::decode(&member.assignment) {
            Ok(assignment) => assignment.partitions.iter().map(ToString::to_string).collect(),
            Err(_) => vec!["an assignment that cannot be read".to_owned()],
        };
        let instance = of(member.group_instance_id.unwrap_or_default());
        let assigned = of(assigned.join(","));
        let who = format!("member\t{}\t{instance}\t{}", member.member_id, member.client_id);
        print(&format!("{who}\t{}\t{assigned}", member.client_host))?;
    }
    let all = OffsetFetchGroup { group_id: group.clone(), topics: None };
    let request = OffsetFetchRequest { groups: vec![all], require_stable: false };
    let answered = |answer: &OffsetFetchResponse| answer.groups.first().map(|group| group.error);
    let answer = asking.coordinator(&group, &request, answered).await?;
    for topic in answer.groups.into_iter().flat_map(|group| group.topics) {
        for place in topic.partitions.iter().filter(|place| place.offset >= 0) {
            print(&format!("committed\t{}-{}\t{}", topic.name, place.partition, place.offset))?;
        }
    }
    Ok(())
}

async fn remove(asking: &Asking, group: String, instance_ids: Vec<String>) -> Result<(), CliError> {
    let members = instance_ids.iter().map(|instance| LeaveMember {
        member_id: String::new(),
        group_instance_id: Some(instance.clone()),
        reason: Some("removed by an operator".to_owned()),
    });
    let request = LeaveGroupRequest { group_id: group.clone(), members: members.collect() };
    let answer = asking.coordinator(&group, &request, |answer| Some(answer.error)).await?;
    let mut failed = 0;
    for member in answer.members {
        let instance = member.group_instance_id.unwrap_or_default();
        if member.error.is_none() {
            print(&format!("removed {instance}"))?;
        } else {
            failed += 1;
            style::say(&format!("{instance}: {}", member.error));
        }
    }
    match failed {
        0 => Ok(()),
        failed => {
            Err(CliError::Other(format!("{failed} of {} members were not removed", instance_ids.len())))
        }
    }
}

fn print(line: &str) -> Result<(), CliError> {
    style::print(line).map_err(|error| CliError::io("writing to stdout", error))
}

/// Requests, repeated until they are answered or the time is over.
struct Asking {
    client: Client,
    within: Duration,
    deadline: Instant,
}

/// Why a request may be repeated, and what to say if it is not.
enum Trouble {
    Passing(CliError),
    Lasting(CliError),
}

impl Asking {
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).min(TRY)
    }

    /// Asks any broker.
    async fn any<R: Request>(&self, request: &R) -> Result<R::Response, CliError> {
        self.repeat(async || {
            self.client.call_any(request, self.left()).await.map_err(|error| self.trouble(error))
        })
        .await
    }

    /// Asks this broker. `code` finds the error code in an answer.
    async fn at<R: Request>(
        &self,
        at: &Address,
        request: &R,
        code: impl Fn(&R::Response) -> Option<ErrorCode>,
    ) -> Result<R::Response, CliError> {
        self.repeat(async || {
            let answer = self.client.call(at, request, self.left()).await;
            checked(answer.map_err(|error| self.trouble(error))?, &code)
        })
        .await
    }

    /// Asks the group's coordinator.
    async fn coordinator<R: Request>(
        &self,
        group: &str,
        request: &R,
        code: impl Fn(&R::Response) -> Option<ErrorCode>,
    ) -> Result<R::Response, CliError> {
        let find = FindCoordinatorRequest { key_type: 0, keys: vec![group.to_owned()] };
        self.repeat(async || {
            let found = self.client.find_coordinator(&find, self.left()).await;
            let found = found.map_err(|error| self.trouble(error))?;
            let found = checked(found, |found| Some(found.error))?;
            let port = u16::try_from(found.port).map_err(|_| {
                Trouble::Lasting(CliError::Other(format!("the coordinator's port is {}", found.port)))
            })?;
            let answer = self.client.call(&Address::new(found.host, port), request, self.left()).await;
            checked(answer.map_err(|error| self.trouble(error))?, &code)
        })
        .await
    }

    async fn repeat<T>(&self, attempt: impl AsyncFn() -> Result<T, Trouble>) -> Result<T, CliError> {
        loop {
            match attempt().await {
                Ok(done) => return Ok(done),
                Err(Trouble::Lasting(error)) => return Err(error),
                Err(Trouble::Passing(error)) if Instant::now() + PAUSE >= self.deadline => return Err(error),
                Err(Trouble::Passing(_)) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn trouble(&self, error: ClientError) -> Trouble {
        let passing = error.is_retriable();
        let error = match error {
            ClientError::NoBroker { tried } => {
                let tried: Vec<String> =
                    tried.iter().map(|(address, reason)| format!("{address} ({reason})")).collect();
                CliError::NoBroker { within: self.within, tried: format!("tried {}", tried.join(", ")) }
            }
            other => CliError::Other(other.to_string()),
        };
        if passing { Trouble::Passing(error) } else { Trouble::Lasting(error) }
    }
}

fn checked<T>(answer: T, code: impl Fn(&T) -> Option<ErrorCode>) -> Result<T, Trouble> {
    match code(&answer).unwrap_or(ErrorCode::UnknownServerError) {
        ErrorCode::None => Ok(answer),
        code @ (ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator) => Err(Trouble::Passing(CliError::Other(code.to_string()))),
        code => Err(Trouble::Lasting(CliError::Other(code.to_string()))),
    }
}
