//! Answers to the questions of another server. Either end may have opened the stream.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::Streaming;
use xds_control::BoxFuture;
use xds_control::peers::{Answer, Question, Status};

use super::messages::{self, Body, FromAsker, MAX_MESSAGE_BYTES, STATUS_INTERVAL, ToAsker};
use crate::culprits::KeptCulprits;

/// What a server says of itself and its clients.
pub(crate) struct Answers {
    /// The `--instance-id` of this server.
    pub(crate) id: String,
    /// How it is now.
    pub(crate) status: Box<dyn Fn() -> Status + Send + Sync>,
    /// What its clients reject.
    pub(crate) culprits: Arc<KeptCulprits>,
    /// Answers a question.
    pub(crate) answer: Box<dyn Fn(Question) -> BoxFuture<'static, Result<Answer, String>> + Send + Sync>,
}

/// Answers questions, some at the same time, and says how this server is.
pub(super) async fn answer_all(
    answers: &Arc<Answers>,
    questions: &mut Streaming<FromAsker>,
    mut hear: impl FnMut(&FromAsker),
    sender: &mpsc::Sender<ToAsker>,
) {
    let mut asked = JoinSet::new();
    let mut ticks = tokio::time::interval(STATUS_INTERVAL);
    let mut told = None;
    loop {
        tokio::select! {
            question = questions.message() => {
                let Ok(Some(question)) = question else { return };
                hear(&question);
                let Some(question) = question.question else { continue };
                if asked.len() < MAX_QUESTIONS {
                    asked.spawn(answer(Arc::clone(answers), question, sender.clone()));
                    continue;
                }
                let failure = format!("it is asked {MAX_QUESTIONS} questions at once, which is the limit");
                let refused = Body { number: question.number, failure, ..Body::default() };
                if sender.send(of_answer(refused)).await.is_err() {
                    return;
                }
            }
            Some(_) = asked.join_next() => {}
            _ = ticks.tick() => {
                let status = Some(messages::Status::from((answers.status)()));
                let culprits = answers.culprits.news(&mut told);
                if sender.send(ToAsker { status, culprits, ..ToAsker::default() }).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn answer(answers: Arc<Answers>, Body { number, json, .. }: Body, sender: mpsc::Sender<ToAsker>) {
    let answered = match serde_json::from_slice(&json) {
        Ok(question) => (answers.answer)(question).await,
        Err(error) => Err(format!("it cannot read the question, as between different releases: {error}")),
    };
    let answered = answered.and_then(|answer| match serde_json::to_vec(&answer) {
        Ok(json) if json.len() < MAX_ANSWER_BYTES => Ok(json),
        Ok(_) => Err(format!("its answer has more than {MAX_ANSWER_BYTES} bytes")),
        Err(error) => Err(error.to_string()),
    });
    let body = match answered {
        Ok(json) => Body { number, json: json.into(), failure: String::new() },
        Err(failure) => Body { number, failure, ..Body::default() },
    };
    // Whoever asked may be gone.
    let _ = sender.send(of_answer(body)).await;
}

fn of_answer(answer: Body) -> ToAsker {
    ToAsker { answer: Some(answer), ..ToAsker::default() }
}

/// Questions of one server at once.
const MAX_QUESTIONS: usize = 256;

/// Bytes of an answer, with room for what is around it.
const MAX_ANSWER_BYTES: usize = MAX_MESSAGE_BYTES - 1024;

/// Messages to one server that wait to be sent.
pub(super) const MAX_UNSENT: usize = 16;
