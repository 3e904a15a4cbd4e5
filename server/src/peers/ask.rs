//! Questions to another server over a stream of messages, and how it says it is. Either end may have opened the stream.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::Streaming;
use xds_control::peers::{Answer, Question, Status};

use super::messages::{Body, FromAsker, STATUS_INTERVAL, ToAsker};

/// How another server is.
#[derive(Clone, Debug)]
pub(super) enum State {
    Up(Status),
    Down { since: SystemTime, why: String },
}

/// A question that waits for its answer.
#[derive(Debug)]
pub(super) struct Asked {
    json: Bytes,
    answer: oneshot::Sender<Result<Answer, String>>,
}

/// Asks another server, without holding what is known of it meanwhile.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) state: State,
    pub(super) questions: mpsc::Sender<Asked>,
}

impl Asker {
    pub(super) async fn ask(self, question: &Question, patience: Duration) -> Result<Answer, String> {
        if let State::Down { why, .. } = self.state {
            return Err(why);
        }
        let json = serde_json::to_vec(question).map_err(|error| error.to_string())?.into();
        let (answer, answered) = oneshot::channel();
        let asked = self.questions.try_send(Asked { json, answer });
        asked.map_err(|_| "too many questions wait for it".to_owned())?;
        match timeout(patience, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the link with it broke".to_owned()),
            Err(_) => Err(format!("it did not answer within {} s", patience.as_secs_f32())),
        }
    }
}

/// Asks what is to be asked until something goes wrong. Returns what. `hear` gets how the other server is.
pub(super) async fn ask_all(
    incoming: &mut Streaming<ToAsker>,
    questions: &mut mpsc::Receiver<Asked>,
    sender: &mpsc::Sender<FromAsker>,
    mut hear: impl FnMut(&ToAsker),
) -> String {
    let mut pending: HashMap<u64, oneshot::Sender<Result<Answer, String>>> = HashMap::new();
    let mut number = 0;
    loop {
        tokio::select! {
            message = timeout(SILENCE, incoming.message()) => match message {
                Err(_) => return format!("it is silent for {} s", SILENCE.as_secs()),
                Ok(Err(status)) => return format!("the link broke: {}", status.message()),
                Ok(Ok(None)) => return "it ended the link".to_owned(),
                Ok(Ok(Some(message))) => {
                    hear(&message);
                    take(message, &mut pending);
                }
            },
            Some(asked) = questions.recv() => {
                pending.retain(|_, answer| !answer.is_closed());
                if pending.len() >= MAX_WAITING {
                    let _ = asked.answer.send(Err("too many questions wait for it".to_owned()));
                    continue;
                }
                number += 1;
                let question = Body { number, json: asked.json, failure: String::new() };
                let message = FromAsker { question: Some(question), ..FromAsker::default() };
                // A server that takes nothing must not keep its answers from being read.
                match sender.try_send(message) {
                    Ok(()) => drop(pending.insert(number, asked.answer)),
                    Err(_) => drop(asked.answer.send(Err("it takes no more questions".to_owned()))),
                }
            }
        }
    }
}

fn take(message: ToAsker, pending: &mut HashMap<u64, oneshot::Sender<Result<Answer, String>>>) {
    let Some(Body { number, json, failure }) = message.answer else { return };
    let Some(answer) = pending.remove(&number) else { return };
    let read = || {
        let read = serde_json::from_slice(&json);
        read.map_err(|error| format!("its answer cannot be read, as between different releases: {error}"))
    };
    // Whoever asked may be gone.
    let _ = answer.send(if failure.is_empty() { read() } else { Err(failure) });
}

/// The status in a message.
pub(super) fn status_in(message: &ToAsker) -> Option<Status> {
    message.status.as_ref().map(Status::from)
}

/// How long a server may be silent, which says every second how it is.
pub(super) const SILENCE: Duration = STATUS_INTERVAL.saturating_mul(4);

/// Questions to one server at once.
pub(super) const MAX_WAITING: usize = 256;

/// Questions that wait to be sent.
pub(super) const MAX_UNSENT: usize = 64;
