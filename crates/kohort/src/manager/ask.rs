//! A question as a task of its own: one round trip, whose outcome comes back as a message, a panic included.

use std::any::Any;
use std::time::Duration;

use kohort_client::{Address, Client, ClientError};
use kohort_group::Input;
use kohort_group::membership::{Answer, Failure, Question};
use ractor::ActorRef;
use tokio::task::{AbortHandle, JoinError};

use super::ManagerMessage;

/// Asks, and casts the outcome to the manager unless aborted.
pub(super) fn ask(
    client: Client,
    to: Option<Address>,
    question: Question,
    within: Duration,
    round: u64,
    manager: ActorRef<ManagerMessage>,
) -> AbortHandle {
    let task = tokio::spawn(async move { answer(&client, to, question, within).await });
    let abort = task.abort_handle();
    tokio::spawn(async move {
        let answer = match task.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(failure_of(&error)),
            Err(error) if error.is_panic() => Err(Failure::ClientDied(panic_text(error))),
            Err(_) => return,
        };
        // A manager that is gone needs no answer.
        let _ = manager.cast(ManagerMessage::Input(Input::Answered { round, answer }));
    });
    abort
}

async fn answer(
    client: &Client,
    to: Option<Address>,
    question: Question,
    within: Duration,
) -> Result<Answer, ClientError> {
    let to = || to.clone().ok_or(ClientError::NoBroker { tried: Vec::new() });
    Ok(match question {
        Question::FindCoordinator(request) => {
            Answer::Coordinator(client.find_coordinator(&request, within).await?)
        }
        Question::PartitionCounts(topics) => {
            Answer::PartitionCounts(client.partition_counts(&topics, within).await?)
        }
        Question::MatchingTopics(pattern) => {
            let names = client.topic_names(within).await?;
            // Checked when the group was built; what does not compile matches nothing.
            let pattern = crate::config::topic_pattern(&pattern);
            let matching =
                names.into_iter().filter(|name| pattern.as_ref().is_ok_and(|one| one.is_match(name)));
            Answer::MatchingTopics(matching.collect())
        }
        Question::Join(request) => {
            let (version, response) = client.call_versioned(&to()?, &request, within).await?;
            Answer::Joined { version, response }
        }
        Question::Sync(request) => Answer::Synced(client.call(&to()?, &request, within).await?),
        Question::FetchOffsets(request) => Answer::Offsets(client.call(&to()?, &request, within).await?),
        Question::CommitOffsets(request) => Answer::Committed(client.call(&to()?, &request, within).await?),
        Question::Leave(request) => Answer::Left(client.call(&to()?, &request, within).await?),
        _ => return Err(ClientError::NoBroker { tried: Vec::new() }),
    })
}

/// What a failed call means to the core: worth another try, or not.
pub(crate) fn failure_of(error: &ClientError) -> Failure {
    let text = error.to_string();
    match error {
        ClientError::Unsupported { .. } | ClientError::Encode(_) => Failure::Unsupported(text),
        ClientError::Decode { .. } | ClientError::Frame { .. } | ClientError::Correlation { .. } => {
            Failure::Malformed(text)
        }
        ClientError::Connect { .. } | ClientError::NoBroker { .. } => Failure::Unconnected(text),
        _ => Failure::Network(text),
    }
}

pub(crate) fn panic_text(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => panic_message(panic),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => {
            panic.downcast::<&str>().map(|text| text.to_string()).unwrap_or_else(|_| "a panic".into())
        }
    }
}
